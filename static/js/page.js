// The entry point of each page: loads the snapshot and starts the modules. Modules that few pages need load there only.
import * as bind from "./values/bind.js";
import * as columns from "./frame/columns.js";
import * as commands from "./forms/commands.js";
import * as drafts from "./forms/drafts.js";
import * as forms from "./forms/forms.js";
import * as keys from "./frame/keys.js";
import * as live from "./frame/live.js";
import * as notices from "./frame/notices.js";
import * as past from "./frame/past.js";
import * as pause from "./values/pause.js";
import * as refresh from "./values/refresh.js";
import * as search from "./frame/search.js";
import * as sparks from "./charts/sparks.js";
import * as strip from "./frame/strip.js";
import * as table from "./frame/table.js";
import { replace } from "./values/store.js";

replace(JSON.parse(document.getElementById("snapshot").textContent));
for (const part of [bind, strip, columns, table, search, keys, forms, commands, drafts, notices, pause, refresh, sparks, past]) part.start();
/** @type {[selector: string, load: () => Promise<{ start: () => void }>][]} */
const rare = [
  ["form[data-points]", () => import("./forms/points.js")],
  ["#steer, #prediction", () => import("./charts/prediction.js")],
  ["[data-editor]", () => import("./forms/editor.js")],
  ["form[data-preview], select[data-shows], [data-print]", () => import("./forms/previews.js")],
  ["form[data-trial]", () => import("./forms/trial.js")],
  ["input.would, select.would", () => import("./forms/lapsed.js")],
  ["form[data-scope]", () => import("./forms/scope.js")],
  ["[data-appearance]", () => import("./frame/theme_switch.js")],
  ["form[data-passkey]", () => import("./forms/passkeys.js")],
];
for (const [selector, load] of rare) if (document.querySelector(selector)) load().then((part) => part.start());
// Without permission for notifications, only pages that ask for the permission load their module.
const permitted = "Notification" in window && Notification.permission === "granted";
if (permitted || document.querySelector("#notify-ask, [data-notify-test]")) import("./frame/notifications.js").then((part) => part.start());
if (!past.isPast()) live.start();
