// The transport over RabbitMQ. It declares exchanges, queues and dead-letter queues itself, waits for the confirm of
// every message, and keeps the order of a key while a group's messages are spread over several queues.
export { rabbitmq, RabbitMQTransport } from "./rabbitmq-transport.ts";
export type { RabbitCredentials, RabbitMQOptions, RabbitTls, WatchedGroup } from "./options.ts";
export {
  rabbitPermissions,
  type PermissionRequest,
  type PermissionTopic,
  type RabbitPermissions,
} from "./permissions.ts";
