"""Names in the simulated installation."""

CONTROL_HOSTS = ("s1", "s2", "s3")
CONTROL_PORT = 6379
NODES = ("n1", "n2", "n3")
QUEUES = ("alert", "process")
RECEIVER = "desk"
PERSON = "operator"
# An attached Celery app with tasks to retry
SHOP, SHOP_QUEUE = "shop", "pay"
BROKER_HOST, BROKER_PORT = "broker", 6379
