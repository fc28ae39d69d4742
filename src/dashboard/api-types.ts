// The contract between the dashboard's server and its pages: types only, without imports, so that both sides compile it.
// Times are ISO 8601 in UTC. Numbers of 64 bits (row ids, sequence numbers) and payloads are strings, so that no digit is
// lost. Paths are relative to the address where the dashboard is mounted; `routes.ts` lists them.

// ── access ──

/** Each role may do everything that the roles before it may. */
export type Role = "viewer" | "operator" | "admin";

/** Who calls, and what the page may offer. Response of GET api/me. */
export interface Me {
  readonly actor: string;
  readonly role: Role;
  /** How the caller proved who they are. `host`: the application that mounts the dashboard did. */
  readonly signedInBy: "link" | "token" | "host";
  /** When the session ends; null without a session. */
  readonly expiresAt: string | null;
  /** Every route with its role and whether this caller may use it: the page "Your permissions". */
  readonly permissions: readonly Permission[];
  /** True if keys, error texts and names of operators are replaced by null, because the role or the database forbids them. */
  readonly isMasked: boolean;
  readonly schema: string;
  /** True if GET api/demo is offered. */
  readonly hasDemo: boolean;
}

export interface Permission {
  /** Name of the route in the inventory, like "deadLetters.replay". */
  readonly route: string;
  readonly what: string;
  readonly role: Role;
  readonly allowed: boolean;
  /** Why not; null if allowed. */
  readonly why: string | null;
}

/** Body of POST api/session: the code of a one-time link (`#code=…` in its address), or a token. */
export type SignIn = { readonly code: string } | { readonly token: string };

// ── errors ──

/** The body of every response with a status of 400 or higher. */
export interface ApiError {
  readonly error: {
    /** A code of sagabox, like "DEAD_LETTER_CLOSED", or one of the dashboard. */
    readonly code: string;
    /** What happened, and what to do. Safe to show. */
    readonly message: string;
    /** Number of the failure in the server's log; null if the message says everything. */
    readonly reference: string | null;
  };
}

/** Codes of the dashboard itself, with their status. Codes of sagabox come with 400, 403, 404, 409 or 503. */
export type DashboardErrorCode =
  /** 401 */
  | "SIGN_IN_REQUIRED"
  | "SIGN_IN_FAILED"
  /** 403 */
  | "ROLE_REQUIRED"
  | "CROSS_SITE_REQUEST"
  /** 404 */
  | "ROUTE_NOT_FOUND"
  /** 405 */
  | "METHOD_NOT_ALLOWED"
  /** 409: the plan was made for other data. Make it again. */
  | "PLAN_OUTDATED"
  /** 413, 415, 400 */
  | "BODY_TOO_LARGE"
  | "BODY_NOT_JSON"
  | "INPUT_INVALID"
  /** 421: the host name is not allowed. */
  | "HOST_UNKNOWN"
  /** 429 */
  | "TOO_MANY_REQUESTS"
  /** 503: the statement timeout of the dashboard, or no connection. */
  | "DATABASE_SLOW"
  | "DATABASE_UNAVAILABLE"
  /** 500 */
  | "INTERNAL";

// ── common parts ──

/** A count that stops at a limit, to bound its cost. If `exact` is false, say "<count> or more". */
export interface Count {
  readonly count: number;
  readonly exact: boolean;
}

/** One page of a list. Pass `next` as `after` to read the next page; null at the end. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | null;
  /** Time of the database when the page was read, for "as of". */
  readonly at: string;
}

/** Parameters of every list. `limit`: 1 to 200, default 50. */
export interface PageQuery {
  readonly after?: string;
  readonly limit?: string;
}

/** Body of every action. */
export interface Reason {
  /** Why, for the audit log; 1 to 1,000 characters. */
  readonly reason: string;
}

/** The result of an action. `command` is the command line that does it, to copy. */
export interface Done {
  readonly what: string;
  readonly command: string;
}

/** A value that is shown only after POST …/reveal. */
export interface Masked {
  readonly masked: true;
  readonly bytes: number;
  /** True if it has encrypted fields, which stay encrypted also when it is revealed. */
  readonly isEncrypted: boolean;
  /** True if the data are in the blob store, so that only a reference can be shown. */
  readonly isClaimChecked: boolean;
}

/** Response of POST …/reveal. The reveal is in the audit log. */
export interface Revealed {
  /** JSON text, exactly as stored. */
  readonly data: string;
  readonly headers: Readonly<Record<string, string>>;
}

// ── overview ──

/** A problem, the page that shows it, and the command that shows or fixes it. */
export interface Problem {
  readonly what: string;
  readonly command: string;
  /** Address in the dashboard: "dead-letters?group=…". Null if the page cannot help. */
  readonly link: string | null;
  /** What the button says: "Look at the group". */
  readonly action: string | null;
  /** File name of the runbook in docs/runbooks without ".md"; null if unknown. */
  readonly runbook: string | null;
}

/** Response of GET api/overview, and of the live update "overview". */
export interface OverviewView {
  readonly at: string;
  readonly verdict: {
    readonly healthy: boolean;
    /** One sentence: what is wrong and since when, or that everything is fine. */
    readonly sentence: string;
    /** The next action; null if nothing has to be done. */
    readonly next: Problem | null;
  };
  /** All problems, worst first. The first one is `verdict.next`. */
  readonly problems: readonly Problem[];
  readonly rates: Rates;
  readonly outbox: {
    readonly waiting: Count;
    readonly failed: number;
    readonly oldestDueSeconds: number | null;
    readonly scheduled: Count;
    readonly scheduleLateSeconds: number | null;
    readonly heldKeys: number;
  };
  readonly deadLetters: Count;
  readonly sagas: { readonly running: number; readonly compensating: number; readonly failed: number };
  readonly lanes: {
    readonly total: number;
    readonly unowned: number;
    readonly unread: readonly UnreadLane[];
  };
  readonly workers: readonly WorkerView[];
  readonly consumers: readonly ConsumerView[];
  readonly breakers: readonly BreakerView[];
  readonly conservation: ConservationView;
  /** Dead letters, newest causes first, at most five. */
  readonly causes: readonly CauseView[];
}

/** Messages per second over the last sampling interval; null until two samples exist. */
export interface Rates {
  readonly published: number | null;
  readonly sent: number | null;
  readonly handled: number | null;
  readonly deadLettered: number | null;
}

export interface UnreadLane {
  readonly lane: number;
  readonly worker: string;
  readonly consumer: string | null;
  readonly waitingSeconds: number;
}

export interface WorkerView {
  readonly worker: string;
  readonly live: boolean;
  readonly since: string;
  readonly goneSeconds: number | null;
  readonly relayLanes: number;
}

/** `unknown`: the broker cannot tell. */
export type Measured = number | "unknown";

export interface ConsumerView {
  readonly name: string;
  readonly topics: number;
  readonly waiting: Count | "unknown";
  readonly oldestAgeSeconds: Measured;
  readonly failed: number;
  /** Lanes that running workers own; null if its transport has no lanes here. */
  readonly ownedLanes: number | null;
}

/** A destination that the relay of a worker does not send to as usual. Known only for a worker in this process. */
export interface BreakerView {
  readonly destination: string;
  readonly state: "open" | "half-open" | "paused";
}

/** The result of the conservation check: written = sent + waiting + dead + discarded. */
export interface ConservationView {
  /** `unknown`: no worker has finished a round yet. */
  readonly verdict: "kept" | "broken" | "unknown";
  readonly checkedAt: string | null;
  /** Number of messages or rows that are not accounted for. */
  readonly breaches: number;
}

export interface CauseView {
  readonly fingerprint: string;
  readonly label: string;
  readonly open: Count;
  readonly firstAt: string;
  readonly lastAt: string;
}

export interface HistoryQuery {
  /** Default "1h". */
  readonly window?: "1h" | "6h" | "24h" | "7d";
}

/** Response of GET api/history. All arrays have the length of `at`; null where nothing was sampled. */
export interface HistoryView {
  readonly window: "1h" | "6h" | "24h" | "7d";
  readonly stepSeconds: number;
  /** Start of each step, in seconds since 1970, as uPlot wants it. */
  readonly at: readonly number[];
  readonly published: readonly (number | null)[];
  readonly sent: readonly (number | null)[];
  readonly handled: readonly (number | null)[];
  readonly deadLettered: readonly (number | null)[];
  readonly waiting: readonly (number | null)[];
  readonly openDeadLetters: readonly (number | null)[];
  readonly oldestDueSeconds: readonly (number | null)[];
}

// ── search ──

export interface SearchQuery {
  /** Any id: message, saga, dead letter, key, correlation, trace. */
  readonly id: string;
  /** Says what the id is, if it could be several things. */
  readonly as?: "key" | "correlationId" | "traceId";
}

/** Response of GET api/search: what happened, why it is where it is, what happens next. */
export interface SearchView {
  readonly asked: string;
  readonly meanings: readonly string[];
  readonly isMasked: boolean;
  /** True if there is more than is shown. */
  readonly isCut: boolean;
  readonly messages: readonly MessageView[];
  readonly sagas: readonly FoundSaga[];
  /** Common timeline, oldest first. */
  readonly timeline: readonly FoundMoment[];
  readonly next: readonly NextStep[];
  readonly command: string;
}

export interface FoundSaga {
  readonly id: string;
  readonly type: string;
  readonly key: string | null;
  readonly status: string;
  readonly currentStep: string | null;
  readonly createdAt: string;
  readonly completedAt: string | null;
  readonly next: string;
}

export interface Moment {
  readonly at: string;
  readonly what: string;
}

export interface FoundMoment extends Moment {
  /** Type and id of the message or saga. */
  readonly of: string;
}

export interface NextStep {
  readonly of: string;
  readonly state: string;
  readonly why: string;
  readonly next: string;
}

// ── messages ──

/** Where a message is. `later`: waits for its time or its retry. `held`: dead-lettered and blocking its key. */
export type MessageState = "waiting" | "failed" | "held" | "scheduled" | "sent";

export interface MessagesQuery extends PageQuery {
  readonly type?: string;
  readonly topic?: string;
  /** Needs a role that may read keys. */
  readonly key?: string;
  readonly correlationId?: string;
  /** ISO 8601. */
  readonly from?: string;
  readonly to?: string;
  /** Default: all messages of the archive, newest first. The others list the outbox, oldest first. */
  readonly state?: "waiting" | "failed" | "held" | "scheduled";
}

/** A line of GET api/messages, whose response is Page<MessageLine>. */
export interface MessageLine {
  readonly id: string;
  readonly kind: string;
  readonly type: string;
  readonly topic: string;
  readonly key: string | null;
  readonly correlationId: string | null;
  readonly sagaId: string | null;
  readonly source: string | null;
  readonly writtenAt: string;
  readonly state: MessageState;
  readonly attempts: number;
  readonly dueAt: string | null;
  readonly lastError: string | null;
}

/** Response of GET api/messages/:id: one message and its life. */
export interface MessageView {
  readonly message: {
    readonly id: string;
    readonly kind: string;
    readonly type: string;
    readonly schemaVersion: number;
    readonly topic: string;
    readonly key: string | null;
    readonly source: string;
    readonly priority: number;
    readonly sagaId: string | null;
    readonly correlationId: string;
    readonly causationId: string | null;
    readonly traceId: string;
    readonly writtenAt: string;
    readonly expiresAt: string | null;
    readonly scheduledFor: string | null;
    readonly lane: number | null;
  };
  readonly payload: Masked;
  /** State per destination, with the reason and the next event. */
  readonly standings: readonly Standing[];
  /** Oldest first. */
  readonly timeline: readonly Moment[];
  readonly deadLetters: readonly {
    readonly id: string;
    readonly consumer: string | null;
    readonly failedAt: string;
    readonly closedAs: string | null;
  }[];
  readonly isMasked: boolean;
  readonly actions: readonly Legality[];
  readonly command: string;
}

export interface Standing {
  /** "outbox", or the name of a consumer. */
  readonly where: string;
  readonly state: string;
  readonly why: string;
  readonly next: string;
}

/** Whether an action is possible now. `command` is the same action on the command line. */
export interface Legality {
  readonly action: string;
  /** Saga actions on a step; null for all others. */
  readonly step: string | null;
  readonly allowed: boolean;
  /** Why not; null if allowed. */
  readonly why: string | null;
  readonly command: string;
}

/** Body of POST api/messages/:id/bury. `consumer` null: the outbox row. Left out: the only place where it waits. */
export interface BuryBody extends Reason {
  readonly consumer?: string | null;
}

/** Response of POST api/messages/:id/bury. */
export interface Buried extends Done {
  readonly deadLetterId: string;
}

// ── dead letters ──

/** Selects dead letters. As query parameters, and in bodies. All given conditions must hold. */
export interface DeadLetterFilter {
  /** Id of a group. */
  readonly fingerprint?: string;
  readonly origin?: "outbox" | "consumer";
  readonly consumer?: string;
  readonly type?: string;
  readonly topic?: string;
  readonly reason?: "exhausted" | "rejected" | "expired" | "buried" | "poison";
  readonly messageId?: string;
  /** Needs a role that may read keys. */
  readonly key?: string;
  readonly correlationId?: string;
  /** Part of the error, case-insensitive. Needs a role that may read errors. */
  readonly text?: string;
  /** ISO 8601. */
  readonly since?: string;
  readonly until?: string;
}

export interface DeadLettersQuery extends DeadLetterFilter, PageQuery {
  /** "true" (default): open ones. "false": closed ones. "both". */
  readonly open?: "true" | "false" | "both";
}

/** Parameters of GET api/dead-letter-groups. `limit`: 1 to 100, default 25. */
export interface GroupsQuery extends DeadLetterFilter, PageQuery {}

/** Response of GET api/dead-letter-groups. Largest first among those that were read. */
export interface GroupsView extends Page<GroupView> {
  readonly open: Count;
}

/** The open dead letters of one cause. */
export interface GroupView {
  readonly fingerprint: string;
  /** Consumer, message type and error. */
  readonly label: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly type: string;
  readonly topic: string;
  readonly reason: string;
  readonly errorType: string;
  readonly errorMessage: string | null;
  readonly sampleId: string;
  readonly open: Count;
  readonly firstAt: string;
  readonly lastAt: string;
  readonly replayed: Count;
  readonly discarded: Count;
  /** Newly dead-lettered in each of the last twelve five-minute steps, oldest first, from at most 1,000 of them. */
  readonly trend: readonly number[];
  /** Keys that wait behind its dead letters. */
  readonly waitingKeys: Count;
  /** Why nothing would work on its messages if they were replayed; null if a worker runs. */
  readonly notRunning: string | null;
}

/** A line of GET api/dead-letters, whose response is Page<DeadLetterLine>. */
export interface DeadLetterLine {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly messageId: string;
  readonly type: string;
  readonly topic: string;
  readonly key: string | null;
  readonly correlationId: string;
  readonly reason: string;
  readonly attempts: number;
  readonly errorType: string;
  readonly errorMessage: string | null;
  readonly failedAt: string;
  readonly closedAs: "replayed" | "discarded" | null;
  readonly fingerprint: string | null;
}

/** Response of GET api/dead-letters/:id. To compare two of them, read both. */
export interface DeadLetterView extends DeadLetterLine {
  readonly label: string;
  readonly stackTrace: string | null;
  readonly closedAt: string | null;
  readonly writtenAt: string;
  readonly sagaId: string | null;
  readonly causationId: string | null;
  readonly traceId: string | null;
  readonly source: string;
  readonly schemaVersion: number;
  readonly payload: Masked;
  /** Other dead letters of this message with the same consumer, oldest first. */
  readonly others: readonly {
    readonly id: string;
    readonly errorType: string;
    readonly errorMessage: string | null;
    readonly failedAt: string;
    readonly closedAs: string | null;
  }[];
  readonly edits: readonly {
    readonly deadLetterId: string;
    readonly version: number;
    readonly at: string;
    readonly actor: string;
    readonly reason: string;
    readonly beforeHash: string;
    readonly afterHash: string;
    readonly contract: string | null;
  }[];
  readonly history: readonly {
    readonly at: string;
    readonly actor: string;
    readonly action: string;
    readonly reason: string | null;
    readonly outcome: string;
    readonly deadLetterId: string;
  }[];
  /** "replay", "edit", "discard". */
  readonly actions: readonly Legality[];
  /** Why a replayed message would wait; null if a worker runs. */
  readonly notRunning: string | null;
}

/** Body of POST api/dead-letters/:id/edit-plan. The caller must have revealed the data before. */
export interface EditPlanBody {
  /** The new data, as JSON text. */
  readonly data: string;
}

/** Response of POST api/dead-letters/:id/edit-plan: the data passed every check. A failed check is an ApiError. */
export interface EditPlanView {
  readonly before: string;
  readonly after: string;
  readonly beforeHash: string;
  readonly afterHash: string;
  /** Name and version of the contract whose schema was checked; null if this process knows none. */
  readonly contract: string | null;
}

/** Body of POST api/dead-letters/:id/edit. */
export interface EditBody extends EditPlanBody, Reason {
  /** `afterHash` of the plan. */
  readonly confirm: string;
}

/** Pace of a staged replay. */
export interface Pace {
  /** Messages per second after the ramp. Default 50. */
  readonly rate?: number;
  /** Messages of each cause that are replayed first. Default 3. */
  readonly canary?: number;
}

/** Body of POST api/dead-letters/replay-plan. */
export interface ReplayPlanBody extends Pace {
  readonly filter: DeadLetterFilter;
}

/** Response of POST api/dead-letters/replay-plan. */
export interface ReplayPlanView {
  readonly deadLetters: number;
  readonly groups: readonly {
    readonly fingerprint: string;
    readonly label: string;
    readonly consumer: string | null;
    readonly open: number;
    readonly notRunning: string | null;
  }[];
  readonly stages: readonly {
    readonly name: "canary" | "ramp" | "rest";
    readonly perSecond: number;
    /** Null: all that remain. */
    readonly count: number | null;
  }[];
  /** When a group stops by itself, in words. */
  readonly stopRule: string;
  /** To be sent with the start. It expires after ten minutes, or when the number of dead letters has grown. */
  readonly confirm: string;
  readonly command: string;
}

/** Body of POST api/jobs: starts a staged replay or a discard of all that match. */
export interface StartJobBody extends Reason, Pace {
  readonly kind: "replay" | "discard";
  readonly filter: DeadLetterFilter;
  /** `confirm` of the plan. */
  readonly confirm: string;
}

/** Body of POST api/dead-letters/discard-plan. */
export interface DiscardPlanBody {
  readonly filter: DeadLetterFilter;
}

/** Response of POST api/dead-letters/discard-plan. */
export interface DiscardPlanView {
  readonly deadLetters: Count;
  readonly confirm: string;
  readonly command: string;
}

/** A replay or discard that this dashboard process runs. Response of POST api/jobs and GET api/jobs/:id. */
export interface Job {
  readonly id: string;
  readonly kind: "replay" | "discard";
  readonly actor: string;
  readonly reason: string;
  readonly filter: DeadLetterFilter;
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly state: "running" | "stopping" | "done" | "stopped" | "failed";
  readonly done: number;
  readonly total: number;
  /** Of a running replay: the group and stage it is at. */
  readonly now: { readonly fingerprint: string; readonly label: string; readonly stage: string } | null;
  /** Why it stopped or failed; null while it runs or if it is done. */
  readonly why: string | null;
  /** Of a finished replay. */
  readonly groups: readonly JobGroup[];
  readonly command: string;
}

export interface JobGroup {
  readonly fingerprint: string;
  readonly label: string;
  readonly consumer: string | null;
  readonly verdict: string;
  readonly why: string | null;
  readonly stage: string;
  readonly planned: number;
  readonly replayed: number;
  readonly handled: number;
  readonly diedAgain: number;
  readonly waiting: number;
  readonly left: number;
}

// ── sagas ──

export interface SagasQuery extends PageQuery {
  readonly type?: string;
  readonly status?: string;
  readonly step?: string;
  /** Needs a role that may read keys. */
  readonly key?: string;
  readonly correlationId?: string;
}

/** A line of GET api/sagas, whose response is Page<SagaLine>. */
export interface SagaLine {
  readonly id: string;
  readonly type: string;
  readonly definitionVersion: number;
  readonly key: string | null;
  readonly status: string;
  readonly currentStep: string | null;
  readonly waitsFor: string | null;
  readonly waitingSince: string | null;
  readonly lastError: string | null;
  readonly correlationId: string;
  readonly parent: { readonly id: string; readonly step: string } | null;
  readonly dueAt: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly completedAt: string | null;
}

/** Response of GET api/stuck-sagas: the instances that need a person, most urgent first. */
export interface StuckSagasView {
  readonly at: string;
  readonly items: readonly StuckSaga[];
  /** False if there are more. */
  readonly exact: boolean;
}

export interface StuckSaga extends SagaLine {
  readonly reason: "incident" | "unclaimed" | "held" | "slow";
  readonly why: string | null;
  readonly whatToDo: string;
}

/** Response of GET api/sagas/:id. */
export interface SagaView extends SagaLine {
  readonly at: string;
  readonly traceId: string;
  readonly direction: "forward" | "backward";
  readonly pivoted: boolean;
  /** Why it turned back. */
  readonly cause: string | null;
  readonly deadlineAt: string | null;
  readonly claimedBy: string | null;
  readonly pendingInputs: number;
  /** In the order in which they began; those to come last. */
  readonly steps: readonly StepView[];
  /** Null if this process does not know the definition. Draw `steps` in their order then. */
  readonly graph: SagaGraph | null;
  readonly incident: {
    readonly id: string;
    readonly steps: readonly string[];
    readonly error: string | null;
    readonly openedAt: string;
    readonly deadLetters: readonly string[];
  } | null;
  readonly children: readonly SagaLine[];
  /** Legal and illegal actions: retry, skip, settle for each failed step; compensate and cancel for the instance. */
  readonly actions: readonly Legality[];
  readonly next: string;
}

export interface StepView {
  /** Path: "charge", "fulfil.ship" in a group, "poll@2" in the second round. */
  readonly step: string;
  readonly status:
    "pending" | "in_progress" | "completed" | "failed" | "compensating" | "compensated" | "skipped";
  readonly outcome: "done" | "not_done" | "unknown" | null;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly durationMs: number | null;
  readonly attempts: number;
  readonly nextAt: string | null;
  readonly dueAt: string | null;
  readonly error: string | null;
  readonly undo: {
    readonly status: string;
    readonly startedAt: string;
    readonly endedAt: string | null;
    readonly durationMs: number | null;
    readonly attempts: number;
    readonly error: string | null;
  } | null;
}

/** The definition as a tree, nearly serial and parallel, for a layered drawing. */
export interface SagaGraph {
  readonly nodes: readonly GraphNode[];
}

export type GraphNode =
  | {
      readonly kind: "step";
      /** The path in `StepView.step`, without a round. */
      readonly path: string;
      readonly name: string;
      readonly work: "send" | "run" | "tx" | "wait" | "delay" | "child";
      /** Command, event or child saga; null for run, tx and delay. */
      readonly target: string | null;
      /** How it is undone. `none`: `undoTarget` has the reason. Null after the pivot. */
      readonly undo: "send" | "run" | "tx" | "child" | "none" | null;
      readonly undoTarget: string | null;
      readonly pivot: boolean;
      readonly timeoutMs: number | null;
    }
  | {
      readonly kind: "group";
      readonly name: string;
      readonly mode: "all" | "any";
      readonly members: readonly GraphNode[];
    }
  | {
      readonly kind: "branch";
      readonly name: string;
      readonly ways: readonly { readonly name: string; readonly nodes: readonly GraphNode[] }[];
      /** The way that was taken; null if none was yet. */
      readonly chosen: string | null;
    }
  | {
      readonly kind: "repeat";
      readonly name: string;
      readonly body: readonly GraphNode[];
      readonly maxRounds: number;
      readonly round: number;
    };

/** Response of GET api/sagas/:id/history: Page<SagaMoment>, oldest first. */
export interface SagaMoment {
  readonly id: string;
  readonly at: string;
  readonly version: number;
  readonly event: string;
  readonly step: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly note: string | null;
  readonly cause: string | null;
  readonly actor: string | null;
  readonly reason: string | null;
}

/** Response of POST api/sagas/:id/reveal: JSON texts. */
export interface RevealedSaga {
  readonly input: string;
  /** Results by step path. */
  readonly results: Readonly<Record<string, string>>;
}

/** Body of POST api/sagas/:id/actions. */
export interface SagaActionBody extends Reason {
  readonly action: "retry" | "skip" | "settle" | "compensate" | "cancel";
  /** Required for skip and settle; retry without it retries all failed steps. */
  readonly step?: string;
  /** Of settle: the result, as JSON text. */
  readonly result?: string;
}

/** Response of POST api/sagas/:id/actions. A worker that knows the definition carries the action out. */
export interface SagaActionResult extends Done {
  /** False if it was requested before, so that nothing was added. */
  readonly accepted: boolean;
}

// ── flows ──

/** Response of GET api/flows: the flows that the host has registered, with live counts. */
export interface FlowsView {
  readonly at: string;
  readonly flows: readonly FlowView[];
}

export interface FlowView {
  readonly name: string;
  readonly begins: readonly string[];
  readonly ends: readonly string[];
  readonly events: readonly FlowEvent[];
  readonly reactions: readonly {
    readonly on: string;
    readonly by: string;
    readonly undoes: readonly string[];
    readonly outcomes: readonly { readonly events: readonly string[]; readonly failure: boolean }[];
  }[];
  /** Findings of the static check. */
  readonly findings: readonly string[];
}

export interface FlowEvent {
  readonly type: string;
  /** Recorded in the last hour, and among the paths that are open. Counted up to 1,000. */
  readonly recent: Count;
}

export interface UnfinishedQuery {
  readonly flow?: string;
}

/** Response of GET api/unfinished-flows: the paths without progress for 15 minutes, longest first, at most 100. */
export interface UnfinishedView {
  readonly at: string;
  readonly paths: readonly FlowPathView[];
}

/** Response of GET api/flows/:correlationId: everything with that correlation id, for a sequence diagram. */
export interface CorrelationView {
  readonly at: string;
  readonly correlationId: string;
  /** Judged paths through the declared flows. */
  readonly paths: readonly FlowPathView[];
  /** Messages in order of time, at most 200. `from` and `to` are services or consumers. */
  readonly messages: readonly SequenceMessage[];
  readonly sagas: readonly FoundSaga[];
  readonly isCut: boolean;
  readonly command: string;
}

export interface SequenceMessage {
  readonly id: string;
  readonly type: string;
  readonly kind: string;
  readonly at: string;
  readonly from: string;
  readonly causationId: string | null;
  readonly to: readonly { readonly name: string; readonly state: string; readonly at: string | null }[];
}

export interface FlowPathView {
  readonly flow: string;
  readonly correlationId: string;
  readonly status: "running" | "completed" | "compensating" | "compensated" | "failed";
  readonly beganAt: string;
  readonly lastAt: string;
  readonly durationMs: number;
  readonly steps: readonly {
    readonly messageId: string;
    readonly type: string;
    readonly source: string;
    readonly role: "begin" | "effect" | "failure" | "undo" | "unknown";
    readonly parent: string | null;
    readonly happenedAt: string;
    readonly sinceParentMs: number | null;
    readonly sinceBeginMs: number;
  }[];
  readonly waitsFor: readonly {
    readonly by: string;
    readonly oneOf: readonly (readonly string[])[];
    readonly after: { readonly messageId: string; readonly type: string };
    readonly since: string;
  }[];
  readonly notUndone: readonly string[];
  readonly surprises: readonly { readonly messageId: string; readonly type: string; readonly what: string }[];
}

// ── consumers and topology ──

/** Response of GET api/consumers. */
export interface ConsumersView {
  readonly at: string;
  readonly consumers: readonly ConsumerDetail[];
}

export interface ConsumerDetail extends ConsumerView {
  readonly lags: readonly {
    readonly topic: string | null;
    readonly waiting: Count | "unknown";
    readonly oldestAgeSeconds: Measured;
  }[];
  /** Workers that own its lanes, with their number. */
  readonly workers: readonly { readonly worker: string; readonly lanes: number }[];
  /** Handled in the last minute, from at most 1,000 rows. */
  readonly handledLastMinute: Count;
  /** Open dead letters. */
  readonly deadLetters: Count;
}

/** Response of GET api/topology. `bindings` says which consumer reads which topic. */
export interface TopologyView {
  readonly at: string;
  readonly transport: string | null;
  readonly topics: readonly { readonly name: string; readonly types: readonly string[] }[];
  readonly bindings: readonly { readonly topic: string; readonly consumer: string; readonly since: string }[];
  readonly workers: readonly WorkerView[];
  readonly sagas: readonly { readonly type: string; readonly version: number }[];
}

/** Response of GET api/names: what the filters offer. At most 500 each. */
export interface NamesView {
  readonly types: readonly string[];
  readonly topics: readonly string[];
  readonly consumers: readonly string[];
  readonly sagas: readonly string[];
  readonly sagaStatuses: readonly string[];
  readonly flows: readonly string[];
}

// ── audit and settings ──

export interface AuditQuery extends PageQuery {
  readonly log?: "saga" | "action";
  /** "true": only what people did. Default "true". */
  readonly people?: "true" | "false";
  readonly actor?: string;
  readonly action?: string;
  readonly sagaId?: string;
  readonly targetKind?: string;
  readonly targetId?: string;
  readonly outcome?: "done" | "refused" | "failed";
  readonly from?: string;
  readonly to?: string;
}

/** A line of GET api/audit, whose response is Page<AuditLine>. */
export interface AuditLine {
  readonly id: string;
  readonly log: "saga" | "action";
  readonly at: string;
  readonly actor: string | null;
  readonly action: string;
  readonly target: { readonly kind: string; readonly id: string | null };
  readonly reason: string | null;
  readonly outcome: "done" | "refused" | "failed";
  readonly errorCode: string | null;
  /** JSON texts or null. */
  readonly before: string | null;
  readonly after: string | null;
  readonly step: string | null;
  readonly traceId: string | null;
}

/** Response of GET api/settings. */
export interface SettingsView {
  readonly at: string;
  readonly versions: {
    readonly sagabox: string;
    readonly node: string;
    readonly postgres: string;
    readonly schema: number;
    readonly migration: string;
  };
  readonly schema: string;
  /** Name and value in words: retention, masking, who may reveal, what is switched on. */
  readonly settings: readonly { readonly name: string; readonly value: string; readonly help: string }[];
  readonly roles: readonly { readonly role: Role; readonly may: string }[];
}

/** Response of GET api/doctor: the diagnoses of `sagabox doctor`. */
export interface DoctorView {
  readonly at: string;
  readonly diagnoses: readonly {
    readonly severity: string;
    readonly title: string;
    readonly detail: string;
    readonly fix: string | null;
  }[];
}

// ── demo panel ──

/** Response of GET api/demo: what the demo can break, and what is broken now. */
export interface DemoView {
  readonly actions: readonly DemoAction[];
  /** What to look at, step by step. */
  readonly hint: string | null;
}

export interface DemoAction {
  /** "break-payment", "throw-in-consumer", "kill-worker", "repair" and others that the demo offers. */
  readonly name: string;
  readonly title: string;
  readonly help: string;
  readonly active: boolean;
  readonly allowed: boolean;
  readonly why: string | null;
}

/** Body of POST api/demo. */
export interface DemoBody {
  readonly action: string;
}

// ── live updates ──

/**
 * GET api/live?areas=overview,jobs answers with lines of JSON (application/x-ndjson), one LiveEvent each, until the client
 * closes it. Read it with fetch. The first lines are the current state; a "ping" comes at least every 15 seconds. If it
 * cannot be opened, poll the route of the area every 10 seconds. Close it while the tab is hidden.
 */
export type LiveEvent =
  | { readonly kind: "overview"; readonly data: OverviewView }
  | { readonly kind: "job"; readonly data: Job }
  | { readonly kind: "demo"; readonly data: DemoView }
  /** The latest point of api/history?window=1h. Append it, or replace the last point if `at` is equal. */
  | { readonly kind: "point"; readonly data: LivePoint }
  | { readonly kind: "ping"; readonly at: string }
  /** The role changed or the session ended; the stream closes. */
  | { readonly kind: "signed-out" };

export interface LivePoint {
  readonly at: number;
  readonly published: number | null;
  readonly sent: number | null;
  readonly handled: number | null;
  readonly deadLettered: number | null;
  readonly waiting: number | null;
  readonly openDeadLetters: number | null;
  readonly oldestDueSeconds: number | null;
}

export interface LiveQuery {
  /** Comma-separated: "overview", "jobs", "demo". Default: all. */
  readonly areas?: string;
}

// ── every route, for a typed client ──

/** Query, body and response of each route, by its name in the inventory. */
export interface Api {
  "session.signIn": { body: SignIn; response: Me };
  "session.signOut": { body: Record<string, never>; response: Record<string, never> };
  me: { response: Me };
  overview: { response: OverviewView };
  history: { query: HistoryQuery; response: HistoryView };
  search: { query: SearchQuery; response: SearchView };
  names: { response: NamesView };
  "messages.list": { query: MessagesQuery; response: Page<MessageLine> };
  "messages.show": { params: { id: string }; response: MessageView };
  "messages.reveal": { params: { id: string }; body: Reason; response: Revealed };
  "messages.retryNow": { params: { id: string }; body: Reason; response: Done };
  "messages.bury": { params: { id: string }; body: BuryBody; response: Buried };
  "deadLetters.groups": { query: GroupsQuery; response: GroupsView };
  "deadLetters.list": { query: DeadLettersQuery; response: Page<DeadLetterLine> };
  "deadLetters.show": { params: { id: string }; response: DeadLetterView };
  "deadLetters.reveal": { params: { id: string }; body: Reason; response: Revealed };
  "deadLetters.replay": { params: { id: string }; body: Reason; response: Done };
  "deadLetters.discard": { params: { id: string }; body: Reason; response: Done };
  "deadLetters.editPlan": { params: { id: string }; body: EditPlanBody; response: EditPlanView };
  "deadLetters.edit": { params: { id: string }; body: EditBody; response: Done };
  "deadLetters.replayPlan": { body: ReplayPlanBody; response: ReplayPlanView };
  "deadLetters.discardPlan": { body: DiscardPlanBody; response: DiscardPlanView };
  "jobs.list": { response: { readonly items: readonly Job[] } };
  "jobs.show": { params: { id: string }; response: Job };
  "jobs.start": { body: StartJobBody; response: Job };
  "jobs.stop": { params: { id: string }; body: Reason; response: Job };
  "sagas.list": { query: SagasQuery; response: Page<SagaLine> };
  "sagas.stuck": { response: StuckSagasView };
  "sagas.show": { params: { id: string }; response: SagaView };
  "sagas.history": { params: { id: string }; query: PageQuery; response: Page<SagaMoment> };
  "sagas.reveal": { params: { id: string }; body: Reason; response: RevealedSaga };
  "sagas.act": { params: { id: string }; body: SagaActionBody; response: SagaActionResult };
  "flows.list": { response: FlowsView };
  "flows.unfinished": { query: UnfinishedQuery; response: UnfinishedView };
  "flows.show": { params: { id: string }; response: CorrelationView };
  "consumers.list": { response: ConsumersView };
  topology: { response: TopologyView };
  "audit.list": { query: AuditQuery; response: Page<AuditLine> };
  settings: { response: SettingsView };
  doctor: { response: DoctorView };
  "demo.show": { response: DemoView };
  "demo.act": { body: DemoBody; response: DemoView };
  live: { query: LiveQuery; response: LiveEvent };
}

export type RouteName = keyof Api;
