// The list of the arrays that are served on a machine. It polls the list, and links to each array's page. Text from the server
// is set as text only, never as HTML.
"use strict";

const colors = { healthy: "good", unsynced: "warn", degraded: "warn", silent: "warn", failed: "bad", gone: "bad" };
function members(array) {
  if (array.level === null) return ["", ""];
  const text = `${array.in_sync} of ${array.raid_disks}`;
  const more = array.may_fail;
  if (more === null || array.in_sync === array.raid_disks) return [text, array.in_sync === array.raid_disks ? "good" : "warn"];
  return more > 0 ? [`${text}; ${more} more may fail`, "warn"] : [`${text}; no more may fail`, "bad"];
}

function underWay(array) {
  if (!array.sweep) {
    const action = array.sync_action === null || array.sync_action === "idle" ? "" : array.sync_action;
    const failure = array.sweep_failure ? `did not finish: ${array.sweep_failure}` : "";
    return [[action, failure].filter(Boolean).join("; "), failure ? "bad" : ""];
  }
  const { action, percent, paused } = array.sweep;
  return [`${action}: ${(percent ?? 0).toFixed(1)} %${paused ? ", paused" : ""}`, ""];
}

function health(array) {
  const words = [array.health, array.read_only ? "read-only" : ""].filter(Boolean).join(", ");
  return [array.reason ? `${words}: ${array.reason}` : words, colors[array.health] ?? ""];
}

function lastScrub(array) {
  const scrub = array.last_scrub;
  if (!scrub) return ["", ""];
  const ended = new Date(scrub.ended * 1000);
  const day = Number.isNaN(ended.getTime()) ? "at an unknown time" : ended.toISOString().slice(0, 10);
  return scrub.left > 0 ? [`${day}: ${scrub.left} rows left wrong`, "bad"] : [day, ""];
}

// Rows are kept, by the name in the URL, so that focus survives an update.
const rows = new Map();

function newRow(array) {
  const row = document.createElement("tr");
  const heading = document.createElement("th");
  heading.scope = "row";
  const link = document.createElement("a");
  link.href = array.page;
  heading.append(link);
  const cells = Array.from({ length: 6 }, () => document.createElement("td"));
  row.append(heading, ...cells);
  return { row, link, cells };
}

function show(array, _, all) {
  if (!rows.has(array.page)) rows.set(array.page, newRow(array));
  const { row, link, cells } = rows.get(array.page);
  const isAlone = all.filter((other) => other.name === array.name).length === 1;
  link.textContent = [array.name, isAlone ? "" : array.uuid].filter(Boolean).join(" ") || array.uuid || array.control;
  const texts = [
    [array.level ?? "", ""], [array.array_bytes === null ? "" : size(array.array_bytes), "number"], members(array),
    health(array), underWay(array), lastScrub(array),
  ];
  cells.forEach((cell, index) => { [cell.textContent, cell.className] = texts[index]; });
  return row;
}

async function look() {
  try {
    const arrays = await ask("v1/arrays");
    const wanted = arrays.map(show);
    const shown = [...at("arrays").children];
    if (wanted.length !== shown.length || wanted.some((row, index) => row !== shown[index])) at("arrays").replaceChildren(...wanted);
    const troubled = arrays.filter((array) => array.health !== "healthy" || (!array.sweep && array.sweep_failure)).length;
    document.title = `mdspace: ${arrays.length} arrays${troubled ? `, ${troubled} not healthy` : ""}`;
    at("details").textContent = arrays.length === 0 ? "No array is served here. mdspace serve MEMBER... serves one."
      : troubled === 0 ? `${arrays.length} served, all healthy` : `${arrays.length} served, ${troubled} not healthy`;
    at("details").className = troubled === 0 ? "" : "warn";
    at("message").textContent = "";
    isCurrent();
    lock(false);
  } catch (error) {
    if (error.status === 401) lock(true);
    at("message").textContent = error.status !== 401 ? isStale("mdspace web", error)
      : token ? "This is not the right token." : "The arrays are shown to those who enter the token.";
  }
}

watch(look, 2000);
