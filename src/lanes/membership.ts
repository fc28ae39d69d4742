import { hasEnded, randomToken, thisProcess, type Clock } from "../runtime/index.ts";
import { toArrayLiteral, type Param, type Rows, type Statement } from "../storage/index.ts";
import { EndedProcesses } from "./ended-processes.ts";
import type { OwnershipStatements } from "./ownership-statements.ts";

export interface MembershipOptions {
  readonly run: <R>(statement: Statement, params: readonly Param[]) => Promise<Rows<R>>;
  readonly sql: OwnershipStatements;
  readonly scope: number;
  readonly worker: string;
  readonly leaseMs: number;
  /** Whether all statements go through one session, whose end then tells others of ours. */
  readonly hasSession: boolean;
  readonly clock: Clock;
}

/** What a member sees of the others, and of itself, in the table. */
export interface MemberView {
  readonly members: number;
  readonly rank: number;
  /** Its lease is running, and known to be held by this session. */
  readonly present: boolean;
  readonly free: number;
  /** Ours by the table, though we never heard of it. */
  readonly ghosts: number;
  /** Processes of which no session is left, with their places, as JSON. */
  readonly absent: string;
}

const NOTHING_SEEN: MemberView = { members: 0, rank: 0, present: false, free: 0, ghosts: 0, absent: "{}" };

const MAX_EARLIER_IDS = 8;

/**
 * One member among those that share a scope, under a lease. The database clock decides when it is over for others; this
 * process gives up earlier, by its own monotonic clock, counted from before the statement that renewed it.
 */
export class Membership {
  readonly #options: MembershipOptions;
  readonly #endedProcesses: EndedProcesses;
  #id: string | undefined;
  #validUntilMs = -Infinity;
  #earlierIds: readonly string[] = [];

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#endedProcesses = new EndedProcesses(options.leaseMs);
  }

  /** Undefined while it is no member. */
  get id(): string | undefined {
    return this.#id;
  }

  /** Under which ids this process was a member before, the latest ones. It holds no claims of these any more. */
  get earlierIds(): readonly string[] {
    return this.#earlierIds;
  }

  /** How long this process may still believe in its lease. A tenth is kept back for clocks that differ. */
  remainingMs(): number {
    return this.#validUntilMs - this.#options.clock.monotonicMs();
  }

  /** There is a lease, it is known to be ours, and it is not time yet to renew it. */
  isFresh(look: MemberView): boolean {
    return look.present && this.remainingMs() > this.#options.leaseMs * 0.6;
  }

  async join(): Promise<void> {
    const { run, sql, scope, worker, leaseMs, hasSession, clock } = this.#options;
    const id = `${worker}/${randomToken().slice(0, 12)}`;
    const askedAtMs = clock.monotonicMs();
    const { name, place } = thisProcess;
    await run(sql.join, [id, scope, worker, leaseMs, name, hasSession, place]);
    this.#id = id;
    this.#extendFrom(askedAtMs);
  }

  async look(known: readonly [tokens: string, lanes: string]): Promise<MemberView> {
    const { run, sql, scope, hasSession } = this.#options;
    const { rows } = await run<MemberView>(sql.look, [
      scope,
      this.#id ?? "",
      ...known,
      thisProcess.name,
      hasSession,
    ]);
    return rows[0] ?? NOTHING_SEEN;
  }

  /** Answers with the number of its transaction; with undefined when the lease was over, and we are a member no more. */
  async renew(): Promise<string | undefined> {
    const { run, sql, leaseMs, hasSession, clock } = this.#options;
    const askedAtMs = clock.monotonicMs();
    const id = this.#id;
    const { rows } = await run<{ xid: string }>(sql.renew, [id ?? "", leaseMs, hasSession]);
    if (id !== this.#id) return undefined; // it was given up while the answer was awaited
    if (rows[0] === undefined) this.end();
    else this.#extendFrom(askedAtMs);
    return rows[0]?.xid;
  }

  /** Ends the leases, in every scope, of processes that have ended here for a while; true if there were any. */
  async dismiss({ absent }: MemberView): Promise<boolean> {
    const { run, sql, leaseMs, clock } = this.#options;
    const places = absent === "{}" ? [] : Object.entries(JSON.parse(absent) as Record<string, string | null>);
    const ended = places.filter(([, place]) => hasEnded(place)).map(([process]) => process);
    const overdue = this.#endedProcesses.listOverdue(ended, clock.monotonicMs());
    if (overdue.length === 0) return false;
    const { rows } = await run(sql.dismiss, [toArrayLiteral(overdue), leaseMs]);
    return rows.length > 0;
  }

  /** From here on nothing is believed; the row stays until others remove it. */
  end(): string | undefined {
    const id = this.#id;
    if (id !== undefined) this.#earlierIds = [...this.#earlierIds, id].slice(-MAX_EARLIER_IDS);
    this.#id = undefined;
    this.#validUntilMs = -Infinity;
    return id;
  }

  #extendFrom(askedAtMs: number): void {
    this.#validUntilMs = askedAtMs + this.#options.leaseMs * 0.9;
  }
}
