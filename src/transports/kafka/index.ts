// The transport over Apache Kafka 4. A partition keeps the order of its keys. The members of a consumer group share the
// partitions, commit up to the first record that is not settled, and finish deliveries in flight before a partition
// moves. Batches carry a producer id and a sequence, so that sending a batch again does not store a message twice.
export { kafka, KafkaTransport } from "./kafka-transport.ts";
export type { Credentials, KafkaOptions, SaslOptions, TlsOptions, TopicOptions } from "./options.ts";
export { kafkaAclArguments, kafkaPermissions } from "./permissions.ts";
export type { KafkaPermission, KafkaPermissionOptions } from "./permissions.ts";
