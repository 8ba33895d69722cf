// Escape closes what is open over a page, and returns the focus to what opened it: the menu on a phone, and the choice of
// dates, which also closes when the focus or a press goes elsewhere. Knows nothing of their content.
const days = () => document.querySelector(".be-range[open]");
const menu = () => document.querySelector(".be-side.be-open");

function close(opened) {
  const opener = opened.querySelector(opened.matches(".be-range") ? "summary" : ".be-menu");
  if (opened.matches(".be-range")) opened.open = false;
  else opened.classList.remove("be-open");
  if (opener.hasAttribute("aria-expanded")) opener.setAttribute("aria-expanded", "false");
  return opener;
}

document.addEventListener("keydown", ({ key, target }) => {
  if (key !== "Escape") return;
  const opened = [days(), menu()].find((one) => one?.contains(target));
  if (opened) close(opened).focus();
});

for (const moved of ["focusin", "pointerdown"]) {
  document.addEventListener(moved, ({ target }) => {
    const opened = days();
    if (opened && !opened.contains(target)) close(opened);
  });
}

// Quasar puts lists and tooltips outside of the page's landmarks, where screen readers that navigate by landmarks miss
// them, and makes the box around a list's options focusable, so that they find no options in the list.
new MutationObserver((changes) => {
  const added = changes.flatMap(({ addedNodes }) => [...addedNodes]);
  const opened = added.filter(({ id }) => /^q-portal--(menu|tooltip)/.test(id));
  if (!opened.length) return;
  document.getElementById("main").append(...opened);
  requestAnimationFrame(() => {
    for (const box of document.querySelectorAll("[role=listbox] > [tabindex]")) box.removeAttribute("tabindex");
  });
}).observe(document.body, { childList: true });
