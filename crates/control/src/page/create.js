// The form that creates an array. It is shown where the server creates any. What would be created is checked and shown first;
// only what was checked can be created.
"use strict";

const LEVELS = [["1", "1: copies"], ["5", "5: one parity"], ["6", "6: two parities"], ["10", "10: striped copies"],
  ["0", "0: striped, no redundancy"], ["linear", "linear: one after the other, no redundancy"]];

at("create-level").replaceChildren(...LEVELS.map(([value, text]) => new Option(text, value, false, value === "5")));

function newDevice({ path, bytes, model, serial }) {
  const row = document.createElement("tr");
  const heading = document.createElement("th");
  heading.scope = "row";
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.value = path;
  label.append(box, ` ${path}`);
  heading.append(label);
  const [size_, drive] = [document.createElement("td"), document.createElement("td")];
  size_.className = "number";
  size_.textContent = size(bytes);
  drive.textContent = [model, serial].filter(Boolean).join(", ");
  row.append(heading, size_, drive);
  return row;
}

// What the form asks for.
function wanted() {
  const chosen = [...document.querySelectorAll("#create-devices :checked")].map((box) => box.value);
  const others = at("create-others").value.split("\n").map((line) => line.trim()).filter(Boolean);
  return { level: at("create-level").value, name: at("create-name").value, members: [...chosen, ...others] };
}

let checked = null; // what the last check was of, as text

// Only what was checked can be created.
function forget() {
  checked = null;
  at("create-now").disabled = true;
  at("create-text").textContent = "";
}

// Shows the form, once: what is chosen in it stays.
async function offerCreation() {
  if (!at("create").hidden) return;
  try {
    const devices = await ask("v1/devices");
    if (devices === null || !at("create").hidden) return; // no array is created here, or the form is shown by now
    at("create-devices").replaceChildren(...devices.map(newDevice));
    at("create").hidden = false;
  } catch { /* the token is wanted first; or the server is gone, as the list says */ }
}

at("create-form").addEventListener("input", forget);

at("create-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const isCheck = event.submitter?.value !== "create";
  const asked = JSON.stringify(wanted());
  if (!isCheck && asked !== checked) return forget();
  forget();
  at("create-check").disabled = true;
  at("create-text").textContent = isCheck ? "Checking" : "Creating";
  let text, isRight = false;
  try {
    text = (await ask("v1/create", { ...JSON.parse(asked), "dry-run": isCheck })).text;
    isRight = isCheck;
  } catch (error) {
    text = error.message;
  }
  at("create-check").disabled = false;
  if (isCheck && asked !== JSON.stringify(wanted())) return; // the form has changed meanwhile
  at("create-text").textContent = text;
  if (!isRight) return;
  checked = asked;
  at("create-now").disabled = false;
});

offerCreation();
at("token-form").addEventListener("submit", offerCreation);
