// NATS JetStream as the carrier of messages. All messages of a prefix live in one stream, each topic spread over a few
// partition subjects; the members of a group agree in a small record at the server who reads which partition, so order
// per key is kept while they compete. docs/guides/nats.md tells the names, docs/decisions/0014 the reasons.
export { nats } from "./nats-transport.ts";
export type { NatsOptions } from "./options.ts";
export { natsPermissions, type NatsPermissionOptions, type NatsPermissions } from "./permissions.ts";
export type { CredentialSource, NatsCredentials } from "./credentials.ts";
export type { NatsTls } from "./servers.ts";
