import type { Role, RouteName } from "./api-types.ts";

/** One route of the API. */
export interface Route {
  readonly method: "GET" | "POST" | "DELETE";
  /** Relative to the address where the dashboard is mounted. `:id` is one segment, percent-encoded. */
  readonly path: string;
  /** The least role that may call it; "none" needs no sign-in. */
  readonly role: Role | "none";
  /** True if it changes something or reveals something, so that it is checked against cross-site requests and audited. */
  readonly changes: boolean;
  /** What it does, for the OpenAPI document and the page "Your permissions". */
  readonly what: string;
  /** Names of its query parameters. */
  readonly query?: readonly string[];
}

const read = (path: string, what: string, query?: readonly string[]): Route => ({
  method: "GET",
  path,
  role: "viewer",
  changes: false,
  what,
  ...(query !== undefined && { query }),
});

const act = (path: string, role: Role, what: string): Route => ({
  method: "POST",
  path,
  role,
  changes: true,
  what,
});

// A plan reads only, but its filter or data may be too long or too personal for an address.
const plan = (path: string, role: Role, what: string): Route => ({
  method: "POST",
  path,
  role,
  changes: false,
  what,
});

const PAGE = ["after", "limit"];
const DEAD_LETTERS = [
  "fingerprint",
  "origin",
  "consumer",
  "type",
  "topic",
  "reason",
  "messageId",
  "key",
  "correlationId",
  "text",
  "since",
  "until",
];

/** Every route of the API. The router, the OpenAPI document, the permissions and the test of roles are made from it. */
export const routes: Readonly<Record<RouteName, Route>> = {
  "session.signIn": {
    method: "POST",
    path: "api/session",
    role: "none",
    changes: true,
    what: "Sign in with a one-time link or a token",
  },
  "session.signOut": {
    method: "DELETE",
    path: "api/session",
    role: "viewer",
    changes: true,
    what: "Sign out",
  },
  me: read("api/me", "Show your permissions"),
  overview: read("api/overview", "Show the state of the system and its problems"),
  history: read("api/history", "Show rates and backlog over time", ["window"]),
  search: read("api/search", "Explain what belongs to an id", ["id", "as"]),
  names: read("api/names", "List known types, topics, consumers, sagas and flows"),
  "messages.list": read("api/messages", "List messages", [
    "type",
    "topic",
    "key",
    "correlationId",
    "from",
    "to",
    "state",
    ...PAGE,
  ]),
  "messages.show": read("api/messages/:id", "Show the life of a message"),
  "messages.reveal": act("api/messages/:id/reveal", "operator", "Reveal the payload of a message"),
  "messages.retryNow": act("api/messages/:id/retry-now", "operator", "Retry a failed message now"),
  "messages.bury": act("api/messages/:id/bury", "operator", "Dead-letter a message that waits"),
  "deadLetters.groups": read("api/dead-letter-groups", "List dead letters by cause", [
    ...DEAD_LETTERS,
    ...PAGE,
  ]),
  "deadLetters.list": read("api/dead-letters", "List dead letters", [...DEAD_LETTERS, "open", ...PAGE]),
  "deadLetters.replayPlan": plan("api/dead-letters/replay-plan", "operator", "Preview a staged replay"),
  "deadLetters.discardPlan": plan("api/dead-letters/discard-plan", "admin", "Preview a discard of many"),
  "deadLetters.show": read("api/dead-letters/:id", "Show a dead letter"),
  "deadLetters.reveal": act("api/dead-letters/:id/reveal", "operator", "Reveal the payload of a dead letter"),
  "deadLetters.replay": act("api/dead-letters/:id/replay", "operator", "Replay one dead letter"),
  "deadLetters.discard": act("api/dead-letters/:id/discard", "operator", "Discard one dead letter"),
  "deadLetters.editPlan": plan(
    "api/dead-letters/:id/edit-plan",
    "operator",
    "Check new data of a dead letter",
  ),
  "deadLetters.edit": act("api/dead-letters/:id/edit", "operator", "Replay a dead letter with new data"),
  "jobs.list": read("api/jobs", "List replays and discards that this dashboard runs"),
  "jobs.show": read("api/jobs/:id", "Show the progress of a replay or discard"),
  "jobs.start": act("api/jobs", "operator", "Replay dead letters in stages, or discard them (admin)"),
  "jobs.stop": act("api/jobs/:id/stop", "operator", "Stop a replay or discard"),
  "sagas.list": read("api/sagas", "List sagas", ["type", "status", "step", "key", "correlationId", ...PAGE]),
  "sagas.stuck": read("api/stuck-sagas", "List sagas that need a person"),
  "sagas.show": read("api/sagas/:id", "Show a saga with its graph"),
  "sagas.history": read("api/sagas/:id/history", "Show the transitions of a saga", PAGE),
  "sagas.reveal": act("api/sagas/:id/reveal", "operator", "Reveal the input and results of a saga"),
  "sagas.act": act("api/sagas/:id/actions", "operator", "Retry, skip, settle, compensate or cancel a saga"),
  "flows.list": read("api/flows", "Show declared flows with live counts"),
  "flows.unfinished": read("api/unfinished-flows", "List flows without progress", ["flow"]),
  "flows.show": read("api/flows/:id", "Show everything with one correlation id"),
  "consumers.list": read("api/consumers", "Show consumers with lag and owners"),
  topology: read("api/topology", "Show topics, bindings and workers"),
  "audit.list": {
    ...read("api/audit", "Show the audit log", [
      "log",
      "people",
      "actor",
      "action",
      "sagaId",
      "targetKind",
      "targetId",
      "outcome",
      "from",
      "to",
      ...PAGE,
    ]),
    role: "operator",
  },
  settings: read("api/settings", "Show versions, roles and retention"),
  doctor: { ...read("api/doctor", "Run the checks of `sagabox doctor`"), role: "operator" },
  "demo.show": read("api/demo", "Show what the demo can break"),
  "demo.act": act("api/demo", "admin", "Break or repair a part of the demo"),
  live: read("api/live", "Stream live updates", ["areas"]),
};
