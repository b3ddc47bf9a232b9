// The entry of every page: brings the snapshot in and starts what the page is made of.
import * as bind from "./bind.js";
import * as commands from "./commands.js";
import * as drafts from "./drafts.js";
import * as forms from "./forms.js";
import * as keys from "./keys.js";
import * as live from "./live.js";
import * as notices from "./notices.js";
import * as notifications from "./notifications.js";
import * as past from "./past.js";
import * as points from "./points.js";
import * as prediction from "./prediction.js";
import * as previews from "./previews.js";
import * as refresh from "./refresh.js";
import * as scope from "./scope.js";
import * as search from "./search.js";
import * as sparks from "./sparks.js";
import * as strip from "./strip.js";
import * as table from "./table.js";
import * as themeSwitch from "./theme_switch.js";
import { replace } from "./store.js";

replace(JSON.parse(document.getElementById("snapshot").textContent));
for (const part of [bind, strip, table, search, keys, forms, commands, scope, drafts, notices, points, prediction, previews, notifications, themeSwitch, refresh, sparks, past]) part.start();
if (!past.isPast()) live.start();
