// The forms of an array's page that change the array. Each says first what it will do, by what the page shows. The server
// refuses what it cannot do, and changes nothing then.
"use strict";

const kept = "A device that holds data is refused.";

function addText(member) {
  if (latest.missing.length === 0) return `Add ${member} as a spare? No slot is empty. ${kept}`;
  const slots = latest.missing.length === 1 ? `slot ${latest.missing[0]}` : `one of the slots ${latest.missing.join(", ")}`;
  return `Add ${member} for ${slots}? Its contents are rebuilt from the other members, beside requests. ${kept}`;
}

function replaceText(member, by) {
  const stays = `${member} stays in use until the other holds everything, and is faulty then.`;
  return by === "" ? `Replace ${member} by a spare? ${stays}` : `Replace ${member} by ${by}? ${stays} ${kept}`;
}

function growText(status, copies) {
  const { raid_disks, component_bytes } = status;
  if (copies > 0) {
    const change = copies > raid_disks ? `${copies - raid_disks} more, which spares take or new members` : `${raid_disks - copies} fewer`;
    return `Keep ${copies} copies instead of ${raid_disks}: ${change}?`;
  }
  return `Use all that each member has? ${size(component_bytes)} of each is used now. What is new is resynced beside requests. ` +
    "The array does not shrink back here, and a file system in it grows only by its own command.";
}

const scrubs = {
  "check": null, // it only looks
  "repair": "Repair? Blocks are rewritten where it is certain which member is wrong. Everything else stays as it is.",
  "repair-parity": "Repair, and recompute parity where nothing tells which member is wrong, as md does? If data is wrong there, it stays wrong for good.",
  "pause": null, "resume": null, "cancel": null,
};

// What can be done to the current scrub, or the one that may begin.
function scrubActions(scrub) {
  switch (scrub?.state) {
    case "waiting": case "running": return ["pause", "cancel"];
    case "paused": return ["resume", "cancel"];
    default: return ["check", "repair", "repair-parity"];
  }
}

// Values that a setting takes. Others may be typed.
const values = {
  "sync-action": ["check", "repair", "frozen", "idle"],
  "sync-speed-min": ["1000K", "10M", "100M"],
  "sync-speed-max": ["none", "10M", "100M"],
  "stripe-size": ["auto", "4K", "64K"],
  "bitmap": ["internal", "none"],
  "bitmap-delay": ["5", "30"],
  "consistency-policy": ["resync", "bitmap", "ppl", "log"],
  "member-timeout": ["30", "none"],
  "max-corr-read-errors": ["20"],
  "sweep-window": ["auto", "64K", "1M"],
  "sweep-in-flight": ["8M", "64M"],
  "read-only": ["off", "on"],
};

function options(names, chosen) {
  return names.map((name) => new Option(name, name, false, name === chosen));
}

// Offers these names, if others are offered now. The choice survives.
function offer(select, names) {
  const offered = [...select.options].map((option) => option.value);
  if (names.length === offered.length && names.every((name, index) => name === offered[index])) return;
  select.replaceChildren(...options(names, select.value));
}

// What can be changed of the array as it is.
function offerChanges(status, scrub) {
  offer(at("replace-member"), status.members.filter((member) => member.state === "in_sync").map((member) => member.name));
  offer(at("scrub-action"), scrubActions(scrub));
  const isMirror = status.level === "raid1";
  at("grow-copies").closest("label").hidden = !isMirror;
  at("grow-form").hidden = status.read_only || !["raid1", "raid4", "raid5", "raid6", "raid10"].includes(status.level);
}

at("set-key").replaceChildren(...options(Object.keys(values), ""));
function offerValues() {
  at("set-values").replaceChildren(...options(values[at("set-key").value], ""));
}
at("set-key").addEventListener("change", () => {
  at("set-value").value = "";
  offerValues();
});
offerValues();

// Carries a form's change out once its text is confirmed. Without a text nothing is to be confirmed.
function onSubmit(form, plan) {
  at(form).addEventListener("submit", (event) => {
    event.preventDefault();
    if (!latest) return; // nothing was shown yet
    const { text, route, body } = plan();
    if (text === null || confirm(text)) change(route, body);
  });
}

onSubmit("add-form", () => {
  const member = at("add-member").value;
  return { text: addText(member), route: "v1/members/add", body: { member } };
});
onSubmit("replace-form", () => {
  const [member, by] = [at("replace-member").value, at("replace-with").value.trim()];
  return { text: replaceText(member, by), route: "v1/members/replace", body: by === "" ? { member } : { member, with: by } };
});
onSubmit("scrub-form", () => {
  const action = at("scrub-action").value;
  return { text: scrubs[action], route: "v1/scrub", body: { action } };
});
onSubmit("grow-form", () => {
  const copies = Number(at("grow-copies").value);
  return { text: growText(latest, copies), route: "v1/grow", body: copies > 0 ? { "raid-devices": copies } : { size: null } };
});
onSubmit("set-form", () => ({ text: null, route: "v1/set", body: { [at("set-key").value]: at("set-value").value } }));
onSubmit("stop-form", () => ({
  text: `Stop ${latest.name || latest.uuid}? Its clients lose it. It is left clean, and its server ends.`, route: "v1/stop", body: {},
}));
