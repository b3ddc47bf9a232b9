"""Every address of the console. A permissions test holds this list against a table of roles."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from console.api import v1
from console.pages import (
    account,
    audit,
    dead_letters,
    health,
    ledger,
    loops,
    plans,
    plant,
    queues,
    tasks,
)

handler403 = "console.pages.action.forbidden"

urlpatterns = [
    path("", plant.overview, name="overview"),
    path("nodes/", plant.nodes, name="nodes"),
    path("nodes/use", plans.use, name="nodes-use"),
    path("nodes/<str:name>/", plant.node, name="node"),
    path("nodes/<str:name>/thresholds", plant.thresholds, name="node-thresholds"),
    path("queues/", queues.queues, name="queues"),
    path("queues/<str:name>/", queues.queue, name="queue"),
    path("queues/<str:name>/points", plans.points, name="queue-points"),
    path("dead-letters/", dead_letters.letters, name="dead-letters"),
    path("dead-letters/act", dead_letters.act, name="dead-letters-act"),
    path("dead-letters/<str:queue>/<str:node>/<str:dead_id>/", dead_letters.letter, name="dead-letter"),
    path("dead-letters/<str:queue>/<str:node>/<str:dead_id>/fix", dead_letters.fix, name="dead-letter-fix"),
    path("workers/", plant.workers, name="workers"),
    path("pipeline/", plant.pipeline, name="pipeline"),
    path("loops/", loops.loops, name="loops"),
    path("loops/<int:loop_id>/", loops.loop, name="loop"),
    path("loops/<int:loop_id>/override", loops.override, name="loop-override"),
    path("loops/<int:loop_id>/mode", loops.mode, name="loop-mode"),
    path("overrides/<int:override_id>/end", loops.end_override, name="override-end"),
    path("overrides/<int:override_id>/extend", loops.extend_override, name="override-extend"),
    path("plans/", plans.plans, name="plans"),
    path("plans/rebalance", plans.rebalance, name="rebalance"),
    path("plans/<int:plan_id>/", plans.plan, name="plan"),
    path("plans/<int:plan_id>/approve", plans.approve, name="plan-approve"),
    path("plans/<int:plan_id>/reject", plans.reject, name="plan-reject"),
    path("plans/<int:plan_id>/stop", plans.stop, name="plan-stop"),
    path("plans/<int:plan_id>/roll-back", plans.roll_back, name="plan-roll-back"),
    path("tasks/", tasks.tasks, name="tasks"),
    path("tasks/define", tasks.define, name="task-define"),
    path("tasks/<str:name>/", tasks.task, name="task"),
    path("tasks/<str:name>/run", tasks.begin, name="task-run"),
    path("tasks/<str:name>/change", tasks.change, name="task-change"),
    path("runs/<int:run_id>/", tasks.run, name="run"),
    path("runs/<int:run_id>/cancel", tasks.cancel, name="run-cancel"),
    path("runs/<int:run_id>/resume", tasks.resume, name="run-resume"),
    path("ledger/", ledger.ledger, name="ledger"),
    path("ledger/<int:entry_id>/", ledger.entry, name="entry"),
    path("audit/", audit.audit, name="audit"),
    path("settings/", account.settings, name="settings"),
    path("settings/tokens", account.token_create, name="token-create"),
    path("settings/tokens/<int:token_id>/revoke", account.token_revoke, name="token-revoke"),
    path(
        "login/",
        LoginView.as_view(template_name="login.html", redirect_authenticated_user=True),
        name="login",
    ),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("api/", v1.urls()),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]
