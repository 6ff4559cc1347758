// Marks the section in view in the navigation, and the page as ready.

const links = [...nav.querySelectorAll("a")];
const sections = [...main.querySelectorAll("section")];
function mark() {
  const above = sections.filter(s => s.getBoundingClientRect().top < 150);
  // At the top it is the first, also in a frame of a notebook that has no height yet.
  const here = scrollY > 0 && above.length ? above[above.length - 1] : sections[0];
  for (const a of links) {
    const marks = a.hash === "#" + here.id;
    // Where the row is too long for the screen, it scrolls to the mark.
    if (marks && !a.classList.contains("here")) nav.scrollTo({ left: a.offsetLeft - (nav.clientWidth - a.offsetWidth) / 2 });
    a.classList.toggle("here", marks);
  }
}
window.addEventListener("scroll", mark, { passive: true });
mark();
document.documentElement.dataset.ready = (performance.now() - began).toFixed(0);
