// What was typed into a form and not sent outlives the session and a lost connection, and of some forms that the page is
// left: it stays in this tab until somebody signs out, and is there again once the page is. Knows no form: the server says
// which fields are kept, and none of them holds a secret.
const KEPT = "breakeven.typed";
const SETTLED_MS = 5000; // a connection that lasts so long is back: the server did not ask for the page anew
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
