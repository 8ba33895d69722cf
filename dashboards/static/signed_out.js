// If a connection was lost because the session has ended, reloads the page, which leads to the sign-in and back here. Only
// once: whoever answers the browser's question with "stay" means it. Knows nothing of what is on the page.
async function look() {
  const answer = await fetch(new URL("../session", import.meta.url)).catch(() => null); // no answer: a network problem
  if (!answer?.ok || (await answer.json()).is_signed_in) return;
  window.socket.off("connect_error", look);
  window.location.reload();
}

// Signing out deletes kept input: the next user of this tab may be somebody else.
document.addEventListener("submit", ({ target }) => {
  if (target.getAttribute("action") !== "sign-out") return;
  window.isSignedOut = true;
  sessionStorage.removeItem("breakeven.typed");
});

const waiting = setInterval(() => {
  if (!window.socket) return;
  clearInterval(waiting);
  window.socket.on("connect_error", look);
}, 200);
