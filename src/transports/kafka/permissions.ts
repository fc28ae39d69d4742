import { SagaboxError } from "../../errors/index.ts";
import { flag, rejectUnknownKeys, text } from "../../options/index.ts";

export interface KafkaPermissionOptions {
  /** Who the service is at the broker, e.g. "User:billing". */
  readonly principal: string;
  /** The prefix the transport is given: rights end where it ends. */
  readonly prefix: string;
  /** May make its own topics. Off, an administrator makes them. Default true. */
  readonly createTopics?: boolean;
}

export interface KafkaPermission {
  readonly resource: "topic" | "group";
  readonly prefix: string;
  readonly principal: string;
  readonly operations: readonly ("Read" | "Write" | "Create")[];
}

/** The least that a service needs: its own topics and groups, and nothing of the cluster. */
export function kafkaPermissions(options: KafkaPermissionOptions): readonly KafkaPermission[] {
  rejectUnknownKeys("kafkaPermissions", options, ["principal", "prefix", "createTopics"]);
  const { createTopics = true } = options;
  const principal = text("kafkaPermissions.principal", options.principal, { pattern: /^\w+:.+$/ });
  const prefix = text("kafkaPermissions.prefix", options.prefix, { pattern: /^[A-Za-z0-9._-]+$/ });
  if (prefix === "." || prefix === "-")
    throw new SagaboxError("OPTIONS_INVALID", "kafkaPermissions.prefix must say whose topics they are.");
  const create = flag("kafkaPermissions.createTopics", createTopics) ? (["Create"] as const) : [];
  return [
    { resource: "topic", prefix, principal, operations: ["Read", "Write", ...create] },
    { resource: "group", prefix, principal, operations: ["Read"] },
  ];
}

/** The same as arguments of Kafka's own `kafka-acls.sh --add`. */
export function kafkaAclArguments(permissions: readonly KafkaPermission[]): readonly string[] {
  return permissions.map(
    ({ resource, prefix, principal, operations }) =>
      `--allow-principal ${principal} ${operations.map((operation) => `--operation ${operation}`).join(" ")} ` +
      `--${resource} ${prefix} --resource-pattern-type prefixed`,
  );
}
