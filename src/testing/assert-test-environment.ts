import { SagaboxError } from "../errors/index.ts";

/** What rewrites the times of other people's rows has no business near a database that is in use. */
export function assertTestEnvironment(what: string): void {
  if (process.env["NODE_ENV"] !== "production") return;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `${what} changes the tables of sagabox behind its back. It is for tests, and NODE_ENV is "production".`,
  );
}
