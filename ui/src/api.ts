// Calls of the API. Every call has a deadline, and every failure says what is known about its outcome.
import type { Api, ApiError, RouteName } from "../../src/dashboard/api-types.ts";

/** Method and path of each route, as in `routes.ts` of the server. A test compares both lists. */
export const paths: Readonly<Record<RouteName, string>> = {
  "session.signIn": "POST api/session",
  "session.signOut": "DELETE api/session",
  me: "GET api/me",
  overview: "GET api/overview",
  history: "GET api/history",
  search: "GET api/search",
  names: "GET api/names",
  "messages.list": "GET api/messages",
  "messages.show": "GET api/messages/:id",
  "messages.reveal": "POST api/messages/:id/reveal",
  "messages.retryNow": "POST api/messages/:id/retry-now",
  "messages.bury": "POST api/messages/:id/bury",
  "deadLetters.groups": "GET api/dead-letter-groups",
  "deadLetters.list": "GET api/dead-letters",
  "deadLetters.replayPlan": "POST api/dead-letters/replay-plan",
  "deadLetters.discardPlan": "POST api/dead-letters/discard-plan",
  "deadLetters.show": "GET api/dead-letters/:id",
  "deadLetters.reveal": "POST api/dead-letters/:id/reveal",
  "deadLetters.replay": "POST api/dead-letters/:id/replay",
  "deadLetters.discard": "POST api/dead-letters/:id/discard",
  "deadLetters.editPlan": "POST api/dead-letters/:id/edit-plan",
  "deadLetters.edit": "POST api/dead-letters/:id/edit",
  "jobs.list": "GET api/jobs",
  "jobs.show": "GET api/jobs/:id",
  "jobs.start": "POST api/jobs",
  "jobs.stop": "POST api/jobs/:id/stop",
  "sagas.list": "GET api/sagas",
  "sagas.stuck": "GET api/stuck-sagas",
  "sagas.show": "GET api/sagas/:id",
  "sagas.history": "GET api/sagas/:id/history",
  "sagas.reveal": "POST api/sagas/:id/reveal",
  "sagas.act": "POST api/sagas/:id/actions",
  "flows.list": "GET api/flows",
  "flows.unfinished": "GET api/unfinished-flows",
  "flows.show": "GET api/flows/:id",
  "consumers.list": "GET api/consumers",
  topology: "GET api/topology",
  "audit.list": "GET api/audit",
  settings: "GET api/settings",
  doctor: "GET api/doctor",
  "demo.show": "GET api/demo",
  "demo.act": "POST api/demo",
  live: "GET api/live",
};

const DEADLINE_MS = 30_000;

export type CallInput<N extends RouteName> = Omit<Api[N], "response">;
export type Answer<N extends RouteName> = Api[N]["response"];

/** A call that failed, with a text that may be shown. */
export class CallError extends Error {
  readonly code: string;
  readonly status: number;
  readonly reference: string | null;

  constructor(code: string, status: number, message: string, reference: string | null = null) {
    super(message);
    this.name = "CallError";
    this.code = code;
    this.status = status;
    this.reference = reference;
  }
}

let onSignedOut = (): void => undefined;

/** Calls `listener` when the server answers that nobody is signed in. */
export function whenSignedOut(listener: () => void): void {
  onSignedOut = listener;
}

/** Relative to the page, so that it works at any sub-path. */
export function addressOf(name: RouteName, input: { params?: unknown; query?: unknown }): string {
  const [, path = ""] = paths[name].split(" ");
  const params = (input.params ?? {}) as Record<string, string>;
  const filled = path.replaceAll(/:(\w+)/g, (_, key: string) => encodeURIComponent(params[key] ?? ""));
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries((input.query ?? {}) as Record<string, string | undefined>)) {
    if (value !== undefined && value !== "") search.set(key, value);
  }
  return search.size === 0 ? filled : `${filled}?${search}`;
}

/** Calls a route. Throws a CallError, or an AbortError if `signal` was aborted. */
export async function call<N extends RouteName>(
  name: N,
  input: CallInput<N>,
  signal?: AbortSignal,
): Promise<Answer<N>> {
  const response = await send(name, input, signal);
  const body: unknown = await response.json().catch(() => undefined);
  if (response.ok && body !== undefined) return body as Answer<N>;
  const { error } = (body ?? {}) as Partial<ApiError>;
  const failure =
    error === undefined
      ? new CallError("NO_ANSWER", response.status, unreadable(response.status))
      : new CallError(error.code, response.status, error.message, error.reference);
  if (failure.code === "SIGN_IN_REQUIRED") onSignedOut();
  throw failure;
}

async function send(
  name: RouteName,
  input: { params?: unknown; query?: unknown; body?: unknown },
  signal?: AbortSignal,
): Promise<Response> {
  const [method = "GET"] = paths[name].split(" ");
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  try {
    return await fetch(addressOf(name, input), {
      method,
      credentials: "same-origin",
      cache: "no-store",
      signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
      ...(method !== "GET" && {
        headers: { "content-type": "application/json" },
        body: JSON.stringify(input.body ?? {}),
      }),
    });
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw new CallError("NO_ANSWER", 0, method === "GET" ? READ_FAILED : OUTCOME_UNKNOWN);
  }
}

const READ_FAILED = "The server did not answer. Check that the dashboard runs and that you can reach it.";
const OUTCOME_UNKNOWN =
  "No answer arrived, so it is not known whether the action was carried out. Look at the audit log before you repeat it.";

function unreadable(status: number): string {
  return `The server answered with status ${status} and no explanation. A proxy may be in between; look at its log.`;
}

/** The text of a failure. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
