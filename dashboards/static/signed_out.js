// Where a lost connection is no trouble of the network but the end of the session: to the sign-in, and back here. Once,
// since whoever answered the browser's question with "stay" means it. Knows nothing of what is on the page.
async function look() {
  const answer = await fetch(new URL("../session", import.meta.url)).catch(() => null); // no answer is trouble of the network
  if (!answer?.ok || (await answer.json()).is_signed_in) return;
  window.socket.off("connect_error", look);
  window.location.reload();
}

// Whoever signs out takes what they typed along: the next one in this tab may be somebody else.
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
