// The web page of a served array: it polls status and measures once a second, and shows the differences. Text from the
// server is set as text only, never as HTML. common.js has what it shares with the list of arrays, forms.js the forms that
// change the array.
"use strict";

at("all").hidden = !/\/arrays\/[^/]+\/$/.test(location.pathname); // only below the list of `mdspace web`

const KEPT = 120; // points of a plot
const points = [];
let before = null;
let latest = null; // the status that is shown

function time(nanos) {
  if (nanos === null) return "–";
  if (nanos < 1e6) return `${(nanos / 1e3).toFixed(1)} µs`;
  return nanos < 1e9 ? `${(nanos / 1e6).toFixed(1)} ms` : `${(nanos / 1e9).toFixed(1)} s`;
}

// The difference of one kind of request between two snapshots.
function since(now, earlier) {
  const count = now.count - (earlier ? earlier.count : 0);
  const nanos = now.nanos - (earlier ? earlier.nanos : 0);
  return { bytes: now.bytes - (earlier ? earlier.bytes : 0), mean: count > 0 ? nanos / count : null };
}

async function change(route, body) {
  try {
    await ask(route, body);
    at("message").textContent = "done";
  } catch (error) {
    at("message").textContent = error.message;
  }
  await look();
}

// What is on the label of a member's drive, behind its name.
const drive = ({ model, serial }) => [model, serial && `serial ${serial}`].filter(Boolean).join(", ");

// What smartd noted of the drive, in words.
function smartText(smart) {
  const counts = [
    ["reallocated_sectors", "sectors reallocated"], ["pending_sectors", "sectors pending"],
    ["uncorrectable_sectors", "sectors uncorrectable"], ["media_errors", "media errors"], ["used_percent", "% of its life used"],
  ].filter(([field]) => smart[field] > 0).map(([field, text]) => `${smart[field]} ${text}`);
  return `SMART: ${[...(smart.failing ? ["failing"] : []), ...counts].join(", ") || "nothing"}`;
}

function nameWithDrive(heading, member) {
  const label = Object.assign(document.createElement("small"), { textContent: drive(member) });
  const parts = [label];
  if (member.smart) {
    const className = member.smart.failing ? "bad" : "";
    parts.push(Object.assign(document.createElement("small"), { textContent: smartText(member.smart), className }));
  }
  const lines = parts.filter((part) => part.textContent).flatMap((part) => [document.createElement("br"), part]);
  heading.replaceChildren(member.name, ...lines);
}

const colors = { in_sync: "good", recovering: "warn", spare: "" };
const columns = 8; // besides the name's and the button's

// The rows of the table, by member or slot. Rows are kept, so that focus and a press on a button survive an update.
const rows = new Map();

function newRow(name) {
  const row = document.createElement("tr");
  const cells = Array.from({ length: columns }, () => document.createElement("td"));
  const heading = document.createElement("th");
  heading.scope = "row";
  const button = document.createElement("button");
  button.addEventListener("click", () => {
    if (confirm(`${button.textContent} ${name}?`)) change(`v1/members/${button.textContent}`, { member: name });
  });
  const last = document.createElement("td");
  last.append(button);
  row.append(cells[0], heading, ...cells.slice(1), last);
  return { row, heading, cells, button };
}

function memberRow(member, measured, earlier, seconds) {
  if (!rows.has(member.name)) rows.set(member.name, newRow(member.name));
  const { row, heading, cells, button } = rows.get(member.name);
  nameWithDrive(heading, member);
  const read = measured ? since(measured.read, earlier && earlier.read) : { bytes: 0, mean: null };
  const write = measured ? since(measured.write, earlier && earlier.write) : { bytes: 0, mean: null };
  const busy = measured ? (measured.busy_nanos - (earlier ? earlier.busy_nanos : 0)) / 1e7 / seconds : 0;
  const texts = [
    member.slot ?? "–", member.state.replace("_", " "), `${size(read.bytes / seconds)}/s`, `${size(write.bytes / seconds)}/s`,
    time(read.mean), time(write.mean), `${Math.min(100, Math.round(busy))} %`, member.errors,
  ];
  cells.forEach((cell, index) => {
    cell.textContent = texts[index];
    cell.className = index > 1 ? "number" : "";
  });
  cells[1].className = colors[member.state] ?? "bad";
  if (member.errors > 0) cells[7].classList.add("bad");
  button.textContent = member.state === "in_sync" || member.state === "recovering" ? "fail" : "remove";
  button.setAttribute("aria-label", `${button.textContent} ${member.name}`);
  return row;
}

function leftOutRow({ name, reason, model, serial, smart }) {
  const key = `left out ${name}`;
  if (!rows.has(key)) {
    const [row, number, heading, why, last] = ["tr", "td", "th", "td", "td"].map((tag) => document.createElement(tag));
    [number.textContent, heading.scope, why.colSpan] = ["–", "row", columns - 1];
    nameWithDrive(heading, { name, model, serial, smart });
    const button = document.createElement("button");
    button.textContent = "re-add";
    button.setAttribute("aria-label", `re-add ${name}`);
    button.addEventListener("click", () => {
      const text = `Re-add ${name}? It gets what was written since it left, by the write-intent bitmaps; without them it is refused.`;
      if (confirm(text)) change("v1/members/re-add", { member: name });
    });
    last.append(button);
    row.append(number, heading, why, last);
    rows.set(key, { row, why });
  }
  const { row, why } = rows.get(key);
  why.textContent = `not used: ${reason}`;
  return row;
}

function missingRow(slot) {
  const key = `missing ${slot}`;
  if (!rows.has(key)) {
    const row = document.createElement("tr");
    const [number, state] = [document.createElement("td"), document.createElement("td")];
    [number.textContent, state.textContent, state.colSpan, state.className] = [slot, "missing", columns + 1, "bad"];
    row.append(number, state);
    rows.set(key, { row });
  }
  return rows.get(key).row;
}

function plot(id, series, format) {
  const svg = at(id);
  const most = Math.max(1, ...series.flatMap((one) => one.values));
  svg.replaceChildren(...series.map((one) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("class", one.name);
    line.setAttribute("points", one.values.map((value, index) => `${index * 300 / (KEPT - 1)},${98 - value / most * 94}`).join(" "));
    return line;
  }));
  const text = `reads ${format(series[0].values.at(-1))}, writes ${format(series[1].values.at(-1))}, top of the plot ${format(most)}`;
  svg.setAttribute("aria-label", text);
  at(`${id}-text`).textContent = text;
}

const CELLS = 400; // of the map; as wide as its viewBox
const isOver = (finding) => finding.outcome !== "left" && finding.outcome !== "failed";

// The cell of the map for a finding. Wrong parity is no byte of the array, but belongs to one of its stripes.
function cellOf(finding, status) {
  const parities = status.level === "raid6" ? 2 : 1;
  const first = finding.array.length > 0 ? finding.array[0].at
    : finding.stripe * status.chunk_bytes * (status.raid_disks - parities);
  return Math.min(CELLS - 1, Math.floor(first / status.array_bytes * CELLS));
}

function map(scrub, status) {
  at("scrub").hidden = !scrub;
  if (!scrub) return;
  const { start, end } = scrub.positions;
  const share = end > start ? (scrub.position - start) / (end - start) : 1;
  const [from, to] = [scrub.array.start, scrub.array.start + (scrub.array.end - scrub.array.start) * share];
  const scale = CELLS / status.array_bytes;
  const cells = new Map(); // a cell with anything left is not healed
  for (const finding of scrub.findings) {
    const cell = cellOf(finding, status);
    cells.set(cell, (cells.get(cell) ?? true) && isOver(finding));
  }
  const rect = (name, x, width, y) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ class: name, x, width, y, height: 20 - y })) one.setAttribute(key, value);
    return one;
  };
  at("map").replaceChildren(rect("seen", from * scale, Math.max(0, to - from) * scale, 0),
    ...[...cells].map(([cell, right]) => (right ? rect("healed", cell, 1, 10) : rect("left", cell, 1, 0))));
  const right = scrub.findings.filter(isOver).length;
  const more = scrub.findings_omitted > 0 ? `, and ${scrub.findings_omitted} more that are not drawn` : "";
  const text = `${scrub.action}, ${scrub.state}: ${scrub.findings.length - right} places mismatched, ${right} healed or overwritten since${more}`;
  at("map").setAttribute("aria-label", text);
  at("map-text").textContent = text;
  listFindings(scrub);
}

const LISTED = 200; // findings; `mdspace scrub --json` has more

// What is wrong, where, on which members, and what became of it.
function listFindings({ findings, findings_omitted }) {
  at("findings").hidden = findings.length === 0;
  const cells = (finding) => {
    const places = finding.array.map((place) => `${place.at} to ${place.at + place.bytes}`);
    const why = finding.verdict.decided ?? finding.verdict;
    const members = finding.members.map(({ name, role }) => `${name} (${role})`);
    return [places.join(", ") || `parity of stripe ${finding.stripe}`, why, members.join(", ") || "–", finding.outcome];
  };
  at("findings-rows").replaceChildren(...findings.slice(0, LISTED).map((finding) => {
    const row = document.createElement("tr");
    row.append(...cells(finding).map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    row.lastChild.className = isOver(finding) ? "good" : "bad";
    return row;
  }));
  const more = findings_omitted + Math.max(0, findings.length - LISTED);
  at("findings-title").textContent = `Findings: ${findings.length + findings_omitted}` + (more > 0 ? `, ${more} of them not listed` : "");
}

function show(status, measures) {
  latest = status;
  const seconds = (measures.nanos - (before ? before.nanos : 0)) / 1e9;
  const known = new Map((before ? before.members : []).map((member) => [member.name, member]));
  const measured = new Map(measures.members.map((member) => [member.name, member]));
  const name = status.name || status.uuid;
  document.title = `${name}: ${status.state}`;
  at("headline").textContent = `${name}: ${status.level}, ${size(status.array_bytes)}, ${status.state}` +
    (status.read_only ? ", read-only" : "");
  at("headline").className = status.broken ? "bad" : status.in_sync < status.raid_disks ? "warn" : "good";
  const bitmap = status.bitmap ? `, bitmap ${status.bitmap.set} of ${status.bitmap.bits} set` : "";
  at("details").textContent = status.broken ??
    `${status.in_sync} of ${status.raid_disks} members in sync, events ${status.events}, uuid ${status.uuid}${bitmap}`;
  at("sweep").hidden = !status.sweep && !status.sweep_failure;
  at("sweep-progress").hidden = !status.sweep;
  if (!status.sweep && status.sweep_failure) at("sweep-text").textContent = `did not finish: ${status.sweep_failure}`;
  if (status.sweep) {
    const { action, percent, done_bytes, total_bytes, bytes_per_second, seconds_left, held_by } = status.sweep;
    at("sweep-progress").value = percent;
    const left = seconds_left === null ? "" : `, ${Math.ceil(seconds_left / 60)} min left`;
    const held = held_by === "requests" ? ", yields to requests (faster: set sync-speed-min)" : held_by ? `, held by ${held_by}` : "";
    const rate = `${size(bytes_per_second)}/s${left}${held}`;
    at("sweep-text").textContent = `${action}: ${percent.toFixed(1)} % (${size(done_bytes)} of ${size(total_bytes)}), ${rate}`;
  }
  const wanted = status.members.map((member) => memberRow(member, measured.get(member.name), known.get(member.name), seconds));
  wanted.push(...status.missing.map(missingRow), ...status.left_out.map(leftOutRow));
  const shown = [...at("members").children];
  if (wanted.length !== shown.length || wanted.some((row, index) => row !== shown[index])) at("members").replaceChildren(...wanted);
  const read = since(measures.requests.read, before && before.requests.read);
  const write = since(measures.requests.write, before && before.requests.write);
  if (before) {
    points.push([read.bytes / seconds, write.bytes / seconds, read.mean ?? 0, write.mean ?? 0]);
    if (points.length > KEPT) points.shift();
    const series = (first) => [
      { name: "read", values: points.map((point) => point[first]) },
      { name: "write", values: points.map((point) => point[first + 1]) },
    ];
    plot("rates", series(0), (bytes) => `${size(bytes)}/s`);
    plot("times", series(2), time);
  }
  before = measures;
}

async function look() {
  try {
    const status = await ask("v1/status");
    show(status, await ask("v1/measures"));
    const { scrub } = await ask("v1/scrub");
    map(scrub, status);
    offerChanges(status, scrub);
    isCurrent();
    lock(false);
    if (at("message").dataset.lost) {
      at("message").textContent = "";
      delete at("message").dataset.lost;
    }
  } catch (error) {
    if (error.status === 401) lock(true);
    at("message").textContent = error.status !== 401 ? isStale("The server", error)
      : token ? "This is not the server's token." : "The server shows the array to those who enter its token.";
    at("message").dataset.lost = "yes";
  }
}

watch(look, 1000);
