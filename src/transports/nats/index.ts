// Transport for NATS JetStream. All messages of a prefix are stored in one stream, and each topic has several partition
// subjects. The members of a group assign the partitions among themselves in a small record at the server, so they
// share the work and keep the order per key. Names: docs/guides/nats.md. Reasons: docs/decisions/0014.
export { nats } from "./nats-transport.ts";
export type { NatsOptions } from "./options.ts";
export { natsPermissions, type NatsPermissionOptions, type NatsPermissions } from "./permissions.ts";
export type { CredentialSource, NatsCredentials } from "./credentials.ts";
export type { NatsTls } from "./servers.ts";
