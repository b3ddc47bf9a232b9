// A toast shortly before an override expires, with a button to extend it.
import { words } from "../values/format.js";
import { isPast } from "./past.js";
import { send } from "../forms/sending.js";
import { subscribe } from "../values/store.js";
import { toast } from "../forms/toast.js";

const MORE_MINUTES = 30;
const said = new Set();

export function start() {
  if (!isPast()) subscribe((snapshot) => (snapshot.overrides ?? []).filter((row) => due(row, snapshot.at)).forEach((row) => say(row, snapshot)));
}

/** Check if an override is about to expire. A changed expiry leads to a new notice.
 * @param {OverrideStatus} row @param {number} now */
const due = (row, now) => row.notice_at && row.notice_at <= now && row.expires_at !== null && now < row.expires_at && !said.has(`${row.id}@${row.expires_at}`);

/** @param {OverrideStatus} row @param {LiveSnapshot} snapshot */
function say(row, { hands = [] }) {
  said.add(`${row.id}@${row.expires_at}`);
  const change = hands.find(({ key }) => key === `override/${row.id}`);
  const text = `The manual change “${change ? `${change.title}: ${change.value}` : words(row.name)}” ends in`;
  const may = "mayExtend" in document.body.dataset;
  toast(text, may ? () => extend(row.id) : null, `Extend by ${MORE_MINUTES} min`, row.expires_at);
}

/** @param {number} id */
async function extend(id) {
  const body = new FormData();
  body.set("minutes", String(MORE_MINUTES));
  const answer = await send(`/overrides/${id}/extend`, body);
  toast(answer.ok ? answer.message : Object.values(answer.errors).flat().join(" "));
}
