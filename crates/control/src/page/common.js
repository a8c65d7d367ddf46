// What the page of an array and the list of arrays share: the token, requests, and sizes. Routes are relative, as an array's
// page is below the list in `mdspace web`.
"use strict";

const at = (id) => document.getElementById(id);

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

// The token is of this tab alone. The browser sends it to no other page or port, and forgets it with the tab. A browser
// that stores nothing has it until the page is loaded again.
let token = "";
let locked = false; // Until a token is entered, as the server refuses the last one.

function useToken(text) {
  token = text;
  try { sessionStorage.setItem("token", text); } catch { /* nothing is stored */ }
}

function storedToken() {
  try { return sessionStorage.getItem("token") ?? ""; } catch { return ""; }
}

const PATIENCE = 10000; // for what is only read, in ms; a change may take its time
let readsNeedToken = false; // Learnt from the server: a port of this machine alone is read without.

async function ask(route, body) {
  const isChange = body !== undefined;
  const options = { headers: token && (isChange || readsNeedToken) ? { "Authorization": `Bearer ${token}` } : {} };
  if (isChange) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  } else {
    options.signal = AbortSignal.timeout(PATIENCE);
  }
  const answer = await fetch(route, options);
  if (answer.status === 401 && token && !isChange && !readsNeedToken) {
    readsNeedToken = true;
    return ask(route);
  }
  const value = await answer.json();
  if (!answer.ok) {
    const { member, field, message, advice } = value.error;
    const text = [member, field, message].filter(Boolean).join(": ") + (advice ? ` (${advice})` : "");
    throw Object.assign(new Error(text), { status: answer.status });
  }
  return value;
}

function lock(is) {
  locked = is;
  document.body.classList.toggle("locked", is);
}

let answeredAt = null; // when the server last said what is shown

// What is shown is what the server says now.
function isCurrent() {
  answeredAt = new Date();
  document.body.classList.remove("stale");
}

// What is shown may not hold any more. The text says why, and since when.
function isStale(whose, error) {
  document.title = `${whose}: no answer`;
  document.body.classList.add("stale");
  return `${whose} does not answer: ${error.message}` + (answeredAt ? `. What is shown is of ${answeredAt.toLocaleTimeString()}` : "");
}

// Looks now and at this interval, one look at a time, but not while the server wants a token.
function watch(lookOnce, interval) {
  let isLooking = false;
  const look = async () => {
    if (isLooking) return;
    isLooking = true;
    try { await lookOnce(); } finally { isLooking = false; }
  };
  at("token").addEventListener("change", () => useToken(at("token").value));
  at("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(at("token").value);
    look();
  });
  useToken(storedToken());
  at("token").value = token;
  look();
  setInterval(() => { if (!locked) look(); }, interval);
}
