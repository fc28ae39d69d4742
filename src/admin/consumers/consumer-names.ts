import { findNearest, SagaboxError } from "../../errors/index.ts";
import { quoteSchema, type Queryable } from "../../storage/index.ts";
import { consumerStatements } from "./statements.ts";

/** The consumers this database knows: those that subscribe here, and unless only these count, those that handled something. */
export async function listConsumerNames(
  database: Queryable,
  schema: string,
  { subscribed = false }: { readonly subscribed?: boolean } = {},
): Promise<readonly string[]> {
  const { names } = consumerStatements(quoteSchema(schema));
  return (await database.run<{ name: string }>(names, [subscribed])).rows.map(({ name }) => name);
}

export function unknownConsumer(consumer: string, known: readonly string[]): SagaboxError {
  const meant = findNearest(consumer, known);
  const some = `${known.slice(0, 20).join(", ")}${known.length > 20 ? ` and ${known.length - 20} more` : ""}`;
  const hint = known.length === 0 ? "It knows none." : `It knows: ${some}.`;
  return new SagaboxError(
    "CONSUMER_NOT_FOUND",
    `This database knows no consumer ${JSON.stringify(consumer)}. ${meant === undefined ? "" : `Did you mean ${meant}? `}${hint}`,
  );
}
