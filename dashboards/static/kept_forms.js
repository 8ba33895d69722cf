// Unsent input of a form survives the end of the session and a lost connection and, for some forms, leaving the page. It is
// kept in this tab until somebody signs out, and restored when the page is back. Knows no form: the server says which
// fields are kept, and none of them holds a secret.
const KEPT = "breakeven.typed";
const SETTLED_MS = 5000; // a connection that lasts this long is back: the server did not reload the page
let isLost = false;

function keep() {
  if (window.isSignedOut) return;
  const here = [...document.querySelectorAll(".be-kept")].filter(({ dataset }) => isLost || dataset.outlives === "leaving");
  const forms = here.map(({ dataset }) => {
    const typed = Object.entries(JSON.parse(dataset.typed)).map(([name, id]) => [name, document.getElementById(id)?.value]);
    return [dataset.form, { opened: dataset.opened, typed: Object.fromEntries(typed), chosen: dataset.chosen }];
  });
  sessionStorage.setItem(KEPT, JSON.stringify({ ...JSON.parse(sessionStorage.getItem(KEPT)), ...Object.fromEntries(forms) }));
}

window.addEventListener("pagehide", keep);
document.addEventListener("click", ({ target }) => (isLost ||= target.closest("a[href^=sign-in]") !== null));
window.socket.on("disconnect", () => (isLost = true));
window.socket.on("connect", () => setTimeout(() => (isLost = window.socket.disconnected), SETTLED_MS));

export function bringBack(holder) {
  const { [holder.dataset.form]: kept, ...others } = JSON.parse(sessionStorage.getItem(KEPT)) ?? {};
  sessionStorage.setItem(KEPT, JSON.stringify(others));
  if (kept) holder.dispatchEvent(new CustomEvent("kept", { detail: kept }));
}
