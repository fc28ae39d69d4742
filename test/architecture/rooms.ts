/** What a room of src/ may know. The longest matching path names a file's room. */
export interface Room {
  /** Other rooms it may import, always through their index.ts. */
  readonly rooms: readonly string[];
  /** Files of other rooms it may import directly, as the exception to the rule above. */
  readonly files?: readonly string[];
  /** npm packages any of its files may import. */
  readonly packages?: readonly string[];
  /** npm packages it may import types from, and nothing that runs. */
  readonly typePackages?: readonly string[];
}

const ground = ["message", "runtime", "errors"];
const tools = ["options", "retry", "telemetry"];
const ports = ["storage", "transport"];
const upToPorts = [...ground, ...tools, ...ports];
const upToSaga = [
  ...upToPorts,
  "lanes",
  "audit",
  "dead-letter",
  "claim-check",
  "privacy",
  "outbox",
  "inbox",
  "saga",
  "flow",
];
const upToAdmin = [...upToSaga, "app", "admin"];

export const rooms: Readonly<Record<string, Room>> = {
  // 0: the ground. Only the message may fail with our errors.
  errors: { rooms: [] },
  runtime: { rooms: [] },
  message: { rooms: ["errors"], typePackages: ["@standard-schema/spec"] },
  // 1: tools
  options: { rooms: ["errors"] },
  retry: { rooms: ["errors", "options", "runtime"] },
  telemetry: { rooms: ["message", "errors", "runtime"] },
  "telemetry/opentelemetry": { rooms: ["message", "telemetry"], packages: ["@opentelemetry/api"] },
  // 2: the two ports
  storage: { rooms: ["errors", "options", "retry", "runtime", "telemetry"] },
  "storage/drivers": {
    rooms: ["errors", "runtime"],
    files: [
      "storage/database.ts",
      "storage/statement.ts",
      "storage/postgres-errors.ts",
      "storage/deadlines.ts",
      "storage/pooler.ts",
    ],
    packages: ["pg"],
    typePackages: ["postgres"],
  },
  // The entries of the libraries that users bring.
  transactions: {
    rooms: [],
    files: ["drizzle", "knex", "kysely", "postgres-js", "prisma", "typeorm"].map(
      (library) => `storage/drivers/${library}.ts`,
    ),
  },
  transport: { rooms: ["message", "errors", "runtime", "storage", "telemetry"] },
  "transports/postgres": { rooms: [...ground, ...tools, ...ports, "lanes"] },
  "transports/rabbitmq": { rooms: [...ground, ...tools, "transport"], packages: ["amqplib"] },
  "transports/kafka": {
    rooms: [...ground, ...tools, "transport"],
    packages: ["@platformatic/kafka"],
  },
  "transports/nats": {
    rooms: [...ground, ...tools, "transport"],
    packages: ["@nats-io/transport-node", "@nats-io/jetstream"],
  },
  // 3: what outbox and inbox stand on
  lanes: { rooms: ["errors", "options", "runtime", "telemetry", "storage", "message"] },
  // Who acts writes so in the audit log, in the transaction of the deed.
  audit: { rooms: ["message", "storage", "options", "errors", "runtime", "telemetry"] },
  "dead-letter": { rooms: ["message", "storage", "errors", "telemetry", "options", "runtime", "audit"] },
  "claim-check": { rooms: ["message", "storage", "options", "errors", "runtime", "telemetry"] },
  "claim-check/s3": {
    rooms: ["message", "options", "errors", "transport"],
    files: ["claim-check/blob-store.ts", "claim-check/bytes.ts"],
    packages: ["@aws-sdk/client-s3"],
  },
  privacy: {
    rooms: ["message", "storage", "options", "errors", "runtime", "telemetry", "audit"],
    typePackages: ["@standard-schema/spec"],
  },
  parking: { rooms: [...upToPorts, "transports/postgres"] },
  notify: { rooms: ["errors", "options", "runtime", "telemetry"] },
  embedded: { rooms: ["errors", "runtime", "options"] },
  // 4 and 5: the engine
  outbox: { rooms: [...upToPorts, "lanes", "audit", "dead-letter"] },
  inbox: { rooms: [...upToPorts, "dead-letter"] },
  saga: { rooms: [...upToPorts, "outbox", "inbox"], typePackages: ["@standard-schema/spec"] },
  requests: { rooms: [...upToPorts, "outbox", "inbox"] },
  flow: { rooms: [...upToPorts, "inbox"] },
  // 6: wiring and operations
  // PostgreSQL itself is the default transport, so the wiring knows this one transport by name.
  // The bus hands out the operations of admin, which knows nothing of it.
  app: { rooms: [...upToSaga, "admin", "parking", "notify", "requests", "transports/postgres"] },
  // A consumer is retired where its subscriptions and deliveries are: with PostgreSQL as the transport, in its queue.
  admin: { rooms: [...upToSaga, "transports/postgres"] },
  // 7: the doors
  // The command line reads arguments and prints; what is done is an operation of admin, or of a bus that app makes.
  // It opens the database, and it draws and reads the definitions of sagas and flows, which needs no operation.
  cli: {
    rooms: [
      ...ground,
      "options",
      "telemetry",
      "storage",
      "saga",
      "flow",
      "app",
      "admin",
      "dashboard",
      "embedded",
    ],
  },
  dashboard: { rooms: ["admin", "errors", "runtime"] },
  testing: { rooms: [...upToAdmin, "embedded", "storage/drivers"] },
};

/** The room of a path below src/, or undefined for the front door and for rooms that are not in the table. */
export function findRoom(path: string): string | undefined {
  const candidates = Object.keys(rooms).filter((room) => path.startsWith(`${room}/`));
  return candidates.sort((a, b) => b.length - a.length)[0];
}
