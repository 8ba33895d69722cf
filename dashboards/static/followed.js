// The server sends some markup again every few seconds. This changes only what differs, so that scroll positions,
// selections, opened details and the focus stay. Rows of a table are matched by their first link. Knows no page.
const key = (node) => (node.nodeName === "TR" ? node.querySelector("a[href]")?.getAttribute("href") : undefined);

function isSame(old, fresh) {
  return old.nodeName === fresh.nodeName && key(old) === key(fresh);
}

function patchAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function patchChildren(old, fresh) {
  const keys = new Set([...fresh.childNodes].map(key));
  for (const node of [...old.childNodes]) {
    if (key(node) !== undefined && !keys.has(key(node))) node.remove();
  }
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const mine = key(wanted) === undefined ? place : [...old.childNodes].find((node) => key(node) === key(wanted));
    if (!mine || !isSame(mine, wanted)) {
      old.insertBefore(wanted, place);
      continue;
    }
    if (mine !== place) old.insertBefore(mine, place);
    patch(mine, wanted);
    place = mine.nextSibling;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  patchAttributes(old, fresh);
  patchChildren(old, fresh);
}

export function follow(holder) {
  // The framework sets an element's markup by this name, sanitized.
  holder.setHTML = (html) => {
    const fresh = holder.cloneNode(false);
    Element.prototype.setHTML.call(fresh, html);
    patchChildren(holder, fresh);
  };
}
