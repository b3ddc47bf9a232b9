"""Kafka: consumer groups, and how far each is behind, in events and in seconds."""

from workers.plants.foreign.kafka.cluster import SCHEMES
from workers.plants.foreign.kafka.kafka_plant import OPTIONS, KafkaPlant, check, inspect
from workers.plants.foreign.kind import AdapterKind

ADAPTER = AdapterKind(
    name="kafka",
    title="Kafka cluster: consumer groups and their lag",
    schemes=SCHEMES,
    options=OPTIONS,
    example="kafka://broker.example:9092",
    steers=False,
    make=KafkaPlant,
    inspect=inspect,
    check=check,
)
