// Apache Kafka 4 as the carrier of messages. Topics keep the order of a key by partition; members of a consumer group
// share the partitions and commit only what is done from the beginning on; work in hand is finished before a partition
// moves. Batches are sent with an identity of their own, so that asking again never stores a message twice.
export { kafka, KafkaTransport } from "./kafka-transport.ts";
export type { KafkaOptions } from "./options.ts";
export { kafkaAclArguments, kafkaPermissions } from "./permissions.ts";
export type { KafkaPermission, KafkaPermissionOptions } from "./permissions.ts";
export type { Credentials, SaslOptions, TlsOptions } from "./security-options.ts";
export type { TopicOptions } from "./topic-options.ts";
