// A table that sorts by column, can be searched, and shows long lists in pieces.

/** `columns`: {label, cell(row) → nodes or text, key(row) → sort key, num, cls}. A column without any
    content is left out. `sort`: the column that the table begins sorted by. `stack`: on a narrow screen
    the cells of a row stand below each other. */
function table(columns, rows, { search, limit = 100, label, pick, sort, stack, tools = [] } = {}) {
  const empty = content => content === "" || content === undefined || content === null;
  columns = columns.filter(column => rows.some(row => !empty(column.cell(row))));
  let order = sort ? { column: columns.find(column => column.label === sort.label), down: sort.down } : null;
  let shown = limit;
  let query = "";
  const body = el("tbody");
  const counter = el("span", { class: "count", role: "status" });
  const more = el("button", { type: "button", class: "gone", on: { click: () => { shown = rows.length; draw(); } } }, "Show all");
  const heads = columns.map(column => el("th", { class: column.num && "num", scope: "col" },
    column.key ? el("button", { type: "button", on: { click: () => {
      const down = order && order.column === column ? !order.down : !!column.num;
      order = { column, down };
      draw();
    } } }, column.label) : column.label));
  function draw() {
    let list = rows;
    if (query) list = list.filter(row => search(row).toLowerCase().includes(query));
    heads.forEach((head, at) => {
      if (order && order.column === columns[at]) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (order && order.column) {
      const key = order.column.key;
      const sign = order.down ? -1 : 1;
      list = [...list].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === y) return 0;
        if (x === undefined || x === null) return 1;
        if (y === undefined || y === null) return -1;
        return (x < y ? -1 : 1) * sign;
      });
    }
    body.replaceChildren(...list.slice(0, shown).map(row => {
      const line = el("tr", null, columns.map(column => {
        const cell = el("td", { class: [column.num && "num", column.cls].filter(Boolean).join(" ") || null, "data-label": stack && column.label });
        return fill(cell, null, [column.cell(row)]);
      }));
      if (pick) pick(line, row);
      return line;
    }));
    more.classList.toggle("gone", list.length <= shown);
    counter.textContent = list.length > shown ? `${count(shown)} of ${count(list.length)}` : count(list.length) + (query ? " found" : "");
  }
  const box = el("div");
  if (search || rows.length > limit || tools.length) {
    box.append(el("div", { class: "tools" },
      search && el("input", { type: "search", placeholder: "Search", "aria-label": "Search " + (label || "the table"),
        on: { input: e => { query = e.target.value.toLowerCase(); shown = limit; draw(); } } }),
      ...tools, counter, more));
  }
  box.append(el("div", { class: rows.length > 20 ? "scroll" : "scroll few", tabindex: rows.length > 12 ? 0 : null, role: "region", "aria-label": label },
    el("table", { class: stack && "stack" }, el("thead", null, el("tr", null, heads)), body)));
  draw();
  return box;
}
