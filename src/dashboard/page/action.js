// Starting rgpu's own commands: each dialog shows the command line that does the same.

/**
 * A button that starts an action after a look at its command; nothing where the page only shows. `what` is the thing
 * that the action is about, such as `entry 3`.
 */
function actionButton(text, what, action, note) {
  if (page.read_only) return null;
  const title = (text + " " + what).trim();
  return el("button", { type: "button", "aria-label": title, "data-focus": JSON.stringify(action), on: { click: () => openActionDialog(title, action, note) } }, text);
}

async function openActionDialog(title, action, note) {
  const dialog = el("dialog", { "aria-label": title });
  const body = el("div", { role: "status" });
  const run = el("button", { type: "button", class: "primary", disabled: true }, "Run it");
  const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  fill(dialog, null, [el("h2", null, title), note && el("p", { class: "note" }, said(note)), body, el("div", { class: "row buttons" }, run, close)]);
  // The page goes on below the dialog, so the button that opened it may be another element by then.
  const opener = placeOf(document.activeElement);
  dialog.addEventListener("close", () => {
    dialog.remove();
    (nodeAt(opener) || main).focus({ preventScroll: true });
    refreshSoon();
  });
  document.body.append(dialog);
  dialog.showModal();
  const hideRun = () => {
    run.hidden = true;
    close.focus();
  };
  try {
    const preview = await act(action, true);
    body.append(el("p", { class: "note" }, "The same in a terminal, in the project's folder:"), commandLine(preview.command));
    run.disabled = false;
    run.focus();
  } catch (error) {
    body.append(failureBox(error));
    hideRun();
  }
  const offerAgain = () => {
    run.textContent = "Try again";
    run.disabled = false;
  };
  let outcome = null;
  run.addEventListener("click", async () => {
    run.disabled = true;
    if (outcome) outcome.remove();
    const status = el("p", { class: "note" }, "Running…");
    body.append(status);
    try {
      const result = await act(action, false);
      outcome = actionResult(result);
      if (result.state !== "running" && result.exit !== 0 && await canRepeat(action, result.exit)) offerAgain();
      else hideRun();
      refreshSoon();
    } catch (error) {
      outcome = failureBox(error);
      offerAgain();
    }
    status.replaceWith(outcome);
  });
}

/** Exit statuses of a command that is wrong or is refused: the same command fails again. */
const WRONG_COMMAND = [2, 3];

/** Whether an action that failed can work when it is tried again: a run that has ended can neither be followed nor cancelled. */
async function canRepeat(action, exit) {
  if (WRONG_COMMAND.includes(exit)) return false;
  if (!action.run) return true;
  try {
    return isActive((await get("/runs/" + encodeURIComponent(action.run))).run);
  } catch {
    return false;
  }
}

function actionResult(result) {
  if (result.state === "running") return el("p", null, "The command is still running. Its changes appear on this page.");
  const ok = result.exit === 0;
  const run = result.document && result.document.run && result.document.run.id;
  return el("div", null, el("p", null, badge(ok ? "done" : "exit status " + (result.exit ?? "unknown"), ok ? "good" : "bad"), run && [" ", runLink(run, "open the run")]),
    result.messages && logBox("Messages", terminalText(result.messages)));
}
