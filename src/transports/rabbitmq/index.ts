// RabbitMQ as the carrier of messages: exchanges, queues and dead-letter places are declared from code, every message
// is confirmed before it counts as sent, and groups keep the order of each key over as many queues as they like.
export { rabbitmq, RabbitMQTransport } from "./rabbitmq-transport.ts";
export type { RabbitCredentials, RabbitMQOptions, RabbitTls, WatchedGroup } from "./options.ts";
export {
  rabbitPermissions,
  type PermissionRequest,
  type PermissionTopic,
  type RabbitPermissions,
} from "./permissions.ts";
