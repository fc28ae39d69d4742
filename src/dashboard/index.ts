// The dashboard: an HTTP handler with a typed API over the operations of `admin`, and the pages built from `ui/`. It signs
// callers in, checks their role on every route, and records each action and each reveal in the audit log.
export type * from "./api-types.ts";
export { routes, type Route } from "./routes.ts";
