import { SagaboxError } from "../../errors/index.ts";
import { flag, rejectUnknownKeys, text } from "../../options/index.ts";

export interface KafkaPermissionOptions {
  /** The Kafka principal of the service, e.g. "User:billing". */
  readonly principal: string;
  /** The transport's `prefix` option. Permissions cover only names that start with it. */
  readonly prefix: string;
  /** Whether the service may create its topics. If false, an administrator creates them. Default true. */
  readonly createTopics?: boolean;
}

/** Permission for one principal on all topics or consumer groups whose names start with `prefix`. */
export interface KafkaPermission {
  readonly resource: "topic" | "group";
  readonly prefix: string;
  readonly principal: string;
  readonly operations: readonly ("Read" | "Write" | "Create")[];
}

/**
 * Returns the permissions that a service needs at least: on topics and consumer groups with its prefix, none on the
 * cluster. Throws OPTIONS_INVALID if an option is invalid.
 */
export function kafkaPermissions(options: KafkaPermissionOptions): readonly KafkaPermission[] {
  rejectUnknownKeys("kafkaPermissions", options, ["principal", "prefix", "createTopics"]);
  const { createTopics = true } = options;
  const principal = text("kafkaPermissions.principal", options.principal, { pattern: /^\w+:.+$/ });
  const prefix = text("kafkaPermissions.prefix", options.prefix, { pattern: /^[A-Za-z0-9._-]+$/ });
  if (prefix === "." || prefix === "-")
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "kafkaPermissions.prefix must name the service or application.",
    );
  const createOperations = flag("kafkaPermissions.createTopics", createTopics) ? (["Create"] as const) : [];
  return [
    { resource: "topic", prefix, principal, operations: ["Read", "Write", ...createOperations] },
    { resource: "group", prefix, principal, operations: ["Read"] },
  ];
}

/** Formats permissions as arguments of Kafka's `kafka-acls.sh --add`, one string per permission. */
export function kafkaAclArguments(permissions: readonly KafkaPermission[]): readonly string[] {
  return permissions.map(
    ({ resource, prefix, principal, operations }) =>
      `--allow-principal ${principal} ${operations.map((operation) => `--operation ${operation}`).join(" ")} ` +
      `--${resource} ${prefix} --resource-pattern-type prefixed`,
  );
}
