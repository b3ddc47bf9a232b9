// The entry point of each page: loads the snapshot and starts the modules.
import * as bind from "./values/bind.js";
import * as columns from "./frame/columns.js";
import * as commands from "./forms/commands.js";
import * as drafts from "./forms/drafts.js";
import * as forms from "./forms/forms.js";
import * as keys from "./frame/keys.js";
import * as lapsed from "./forms/lapsed.js";
import * as live from "./frame/live.js";
import * as notices from "./frame/notices.js";
import * as notifications from "./frame/notifications.js";
import * as past from "./frame/past.js";
import * as pause from "./values/pause.js";
import * as points from "./forms/points.js";
import * as prediction from "./charts/prediction.js";
import * as editor from "./forms/editor.js";
import * as previews from "./forms/previews.js";
import * as refresh from "./values/refresh.js";
import * as scope from "./forms/scope.js";
import * as search from "./frame/search.js";
import * as sparks from "./charts/sparks.js";
import * as strip from "./frame/strip.js";
import * as table from "./frame/table.js";
import * as themeSwitch from "./frame/theme_switch.js";
import { replace } from "./values/store.js";

replace(JSON.parse(document.getElementById("snapshot").textContent));
for (const part of [bind, strip, columns, table, search, keys, forms, commands, scope, drafts, lapsed, notices, pause, points, prediction, editor, previews, notifications, themeSwitch, refresh, sparks, past]) part.start();
if (!past.isPast()) live.start();
