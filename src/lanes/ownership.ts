import { errorText } from "../errors/index.ts";
import {
  after,
  type CancelTimer,
  type Clock,
  hasEnded,
  Loop,
  randomToken,
  type Service,
  systemClock,
  thisProcess,
} from "../runtime/index.ts";
import {
  type Database,
  LockWatch,
  type Param,
  type Queryable,
  quoteSchema,
  type Rows,
  SQLSTATE,
  sqlState,
  type Statement,
  toArrayLiteral,
} from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { LaneSettings } from "./options.ts";
import {
  type ClaimedLane,
  claimParams,
  fairShare,
  LANES,
  ownershipStatements,
  type OwnershipStatements,
  preferredLanes,
} from "./statements.ts";

/**
 * The right to work on a lane until another worker claims it. The fence is readable for operators, the token is
 * unique.
 */
export type Claim = ClaimedLane;

/** Works on the lanes: decides when a lane may be released, and is notified when lanes are gained or lost. */
export interface LaneWorker {
  onLanesGained(lanes: readonly number[]): void;
  /** Returns true if the lane has nothing in flight any more. */
  isDrained(lane: number): boolean;
  /** Called when lanes are lost. Another worker may own them already, so their state must be dropped. */
  onLanesLost(lanes: readonly number[]): void;
  /** The number of finished reads, used to date a transaction id. */
  reads(): number;
  confirmReads(xid: string, reads: number): void;
}

export interface OwnershipOptions {
  readonly database: Database;
  /** A dedicated session, so that renewals do not queue behind handlers for a pool connection. */
  readonly session?: () => Promise<Queryable>;
  readonly schema: string;
  /** 0 for the outbox, otherwise the number of a consumer group. */
  readonly scope: number;
  readonly scopeName: string;
  readonly worker: string;
  readonly settings: LaneSettings;
  readonly observer: Observer;
  /** A guest takes the lanes that nobody owns while the scope has no worker, and counts for no worker's share. */
  readonly guest?: boolean;
  readonly clock?: Clock;
}

/** What a guest may work on in a scope: all lanes, none because workers own them, or what other guests leave. */
export type GuestView = "unknown" | "all" | "workers" | "guests";

/** How often a guest looks for lanes that other guests release, in milliseconds. */
const GUEST_TICK_MS = 50;

/** Keeps this worker's lease in one scope (the outbox or a consumer group) and its fair share of the lanes. */
export class LaneOwnership implements Service {
  readonly #options: OwnershipOptions;
  readonly #sql: OwnershipStatements;
  readonly #membership: Membership;
  readonly #claims = new Map<number, Claim>();
  readonly #draining = new Set<number>();
  readonly #loop: Loop;
  #worker: LaneWorker | undefined;
  readonly #watch: LockWatch;
  /** The last tick failed on a lock of another session; the next one reports which. */
  #isBlocked = false;
  #guestView: GuestView = "unknown";
  #lapse: CancelTimer | undefined;
  #leaving = false;

  constructor(options: OwnershipOptions) {
    this.#options = options;
    this.#sql = ownershipStatements(quoteSchema(options.schema));
    this.#membership = new Membership({
      run: (statement, params) => this.#run(statement, params),
      sql: this.#sql,
      scope: options.scope,
      worker: options.worker,
      leaseMs: options.settings.leaseMs,
      hasSession: options.session !== undefined,
      guest: options.guest === true,
      clock: options.clock ?? systemClock,
    });
    const { database, observer, scopeName } = options;
    this.#watch = new LockWatch({ database, observer, doing: `keeping the lease of ${scopeName}` });
    this.#loop = new Loop({
      step: () => this.#tick(),
      maxBackoffMs: options.settings.tickMs * 4,
      onError: (error) => this.#reportFailure(error),
    });
  }

  attach(worker: LaneWorker): void {
    this.#worker = worker;
  }

  get member(): string | undefined {
    return this.#membership.id;
  }

  get size(): number {
    return this.#claims.size;
  }

  /** For a guest: what the last look at the scope found. */
  get guestView(): GuestView {
    return this.#guestView;
  }

  /** Returns the claim if the lane may be worked on now. */
  claim(lane: number): Claim | undefined {
    return this.remainingMs() > 0 && !this.#draining.has(lane) ? this.#claims.get(lane) : undefined;
  }

  /** Returns the claim for settling rows in flight: also while the lane drains and after the local lease time. */
  claimToSettle(lane: number): Claim | undefined {
    return this.#claims.get(lane);
  }

  /** Whether the lane is being released: rows in flight are settled and no new ones are taken. */
  isDraining(lane: number): boolean {
    return this.#draining.has(lane);
  }

  lanes(): number[] {
    if (this.remainingMs() <= 0) return [];
    return [...this.#claims.keys()].filter((lane) => !this.#draining.has(lane));
  }

  /** Milliseconds for which this process may rely on its lease. */
  remainingMs(): number {
    return this.#membership.remainingMs();
  }

  async start(): Promise<void> {
    this.#leaving = false;
    await this.#loop.start();
  }

  /** Releases idle lanes at once and the others when they have drained or the lease has ended. */
  async stop(): Promise<void> {
    this.#leaving = true;
    this.#loop.wake();
    await this.#loop.stop();
    this.#lapse?.();
    await this.#leave();
  }

  /** Runs a tick now: a draining lane became idle, or other lanes became free. */
  wake(): void {
    this.#loop.wake();
  }

  /** Drops claims that are no longer valid. A lane that was claimed again meanwhile is kept. */
  lose(claims: readonly Claim[]): void {
    const gone = claims.filter((claim) => this.#claims.get(claim.lane) === claim).map(({ lane }) => lane);
    for (const lane of gone) this.#claims.delete(lane);
    for (const lane of gone) this.#draining.delete(lane);
    if (gone.length === 0) return;
    this.#options.observer.emit("lanes.lost", { scope: this.#options.scopeName, lanes: gone.length });
    this.#worker?.onLanesLost(gone);
  }

  async #tick(): Promise<number> {
    if (this.member === undefined) {
      await this.#membership.join();
      this.#watchLease();
    }
    const look = await this.#membership.look(this.#knownClaims());
    await this.#keepLease(look);
    if (this.member === undefined) return 0;
    if (await this.#membership.dismiss(look)) return 0;
    await this.#reap();
    if (look.ghosts > 0) await this.#releaseGhostLanes();
    const share = this.#leaving ? 0 : this.#shareOf(look);
    await this.#giveUp(this.#claims.size - share, look);
    if (!this.#leaving && this.#claims.size < share && look.free + look.ghosts > 0) {
      await this.#acquire(share - this.#claims.size, look);
    }
    this.#isBlocked = false;
    return this.#noteGuestView(look);
  }

  #shareOf({ members, rank }: MemberView): number {
    if (this.#options.guest !== true) return fairShare(members, rank);
    return members > 0 ? 0 : LANES;
  }

  /** Returns the wait until the next tick in milliseconds. */
  #noteGuestView({ members }: MemberView): number {
    const { guest, settings } = this.#options;
    if (guest !== true) return settings.tickMs;
    const others = members > 0 ? "workers" : "guests";
    this.#guestView = this.#claims.size === LANES && members === 0 ? "all" : others;
    return this.#guestView === "guests" ? Math.min(GUEST_TICK_MS, settings.tickMs) : settings.tickMs;
  }

  async #keepLease(look: MemberView): Promise<void> {
    if (this.#membership.isFresh(look)) return;
    const reads = this.#worker?.reads() ?? 0;
    const { member } = this;
    const xid = await this.#membership.renew();
    if (xid === undefined || member !== this.member) return this.#onExpelled();
    this.#watchLease();
    this.#worker?.confirmReads(xid, reads);
  }

  // The tick that would notice the lapse may itself hang on a dead connection. If this process was paused, it gets
  // one chance to renew first.
  #watchLease(): void {
    this.#lapse?.();
    const { leaseMs } = this.#options.settings;
    const renewOrLose = (): void => {
      this.#loop.wake();
      this.#lapse = after(leaseMs / 4, () => this.#loseLapsed(), { unref: true });
    };
    this.#lapse = after(Math.max(0, this.remainingMs()), renewOrLose, { unref: true });
  }

  #loseLapsed(): void {
    if (this.remainingMs() <= 0 && this.#claims.size > 0) this.#onExpelled();
  }

  async #acquire(wanted: number, { members, rank }: MemberView): Promise<void> {
    const { scope } = this.#options;
    const { member = "" } = this;
    const token = randomToken();
    const wish = preferredLanes(members, rank).map((lane) => scope * LANES + lane);
    const { rows } = await this.#run<{ lane: number; fence: string }>(this.#sql.acquire, [
      member,
      scope,
      wanted,
      token,
      toArrayLiteral(wish),
      toArrayLiteral(this.#membership.earlierIds),
    ]);
    // If the lease ended meanwhile, the lanes acquired under it are not valid.
    if (rows.length === 0 || member !== this.member) return;
    for (const row of rows) {
      this.#claims.set(row.lane, { lane: row.lane, fence: Number(row.fence), token });
    }
    this.#options.observer.emit("lanes.gained", { scope: this.#options.scopeName, lanes: rows.length });
    this.#worker?.onLanesGained(rows.map((row) => row.lane));
  }

  async #releaseGhostLanes(): Promise<void> {
    await this.#run(this.#sql.disown, [this.#options.scope, this.member ?? "", ...this.#knownClaims()]);
  }

  /** The tokens and lanes of all current claims, as statement parameters. */
  #knownClaims(): [string, string] {
    const tokens = new Set([...this.#claims.values()].map((claim) => claim.token));
    return [toArrayLiteral([...tokens]), toArrayLiteral([...this.#claims.keys()])];
  }

  async #giveUp(surplus: number, { members, rank }: MemberView): Promise<void> {
    if (this.#draining.size !== Math.max(0, surplus)) {
      const wished = preferredLanes(members, rank).map((lane) => this.#options.scope * LANES + lane);
      for (const lane of wished.toReversed()) {
        if (this.#draining.size >= surplus) break;
        if (this.#claims.has(lane)) this.#draining.add(lane);
      }
      for (const lane of wished) {
        if (this.#draining.size <= Math.max(0, surplus)) break;
        // A member left, so this lane is kept.
        if (this.#draining.delete(lane)) this.#worker?.onLanesGained([lane]);
      }
    }
    const idle = [...this.#draining].filter((lane) => this.#worker?.isDrained(lane) ?? true);
    await this.#release(idle);
  }

  /** Releases lanes. A lane that another session has locked is kept and released by a later call. */
  async #release(lanes: readonly number[]): Promise<void> {
    const claims = lanes.flatMap((lane) => this.#claims.get(lane) ?? []);
    if (claims.length === 0) return;
    const { rows } = await this.#run<{ busy: readonly number[] }>(this.#sql.release, claimParams(claims));
    const busy = new Set(rows[0]?.busy);
    const released = claims.map(({ lane }) => lane).filter((lane) => !busy.has(lane));
    for (const lane of released) {
      this.#claims.delete(lane);
      this.#draining.delete(lane);
    }
    if (released.length === 0) return;
    this.#worker?.onLanesLost(released);
    this.#options.observer.emit("lanes.released", {
      scope: this.#options.scopeName,
      lanes: released.length,
    });
  }

  async #reap(): Promise<void> {
    const { rows } = await this.#run<{ id: string }>(this.#sql.reap, [this.#options.scope]);
    for (const row of rows) {
      this.#options.observer.emit("member.gone", { scope: this.#options.scopeName, member: row.id });
    }
  }

  async #leave(): Promise<void> {
    const member = this.#membership.end();
    if (member === undefined) return;
    try {
      await this.#release([...this.#claims.keys()].filter((lane) => this.#worker?.isDrained(lane) ?? true));
      // With rows in flight the lease must expire instead: deleting the member would free the lanes at once.
      if (this.#claims.size === 0) await this.#run(this.#sql.leave, [member]);
    } catch {
      // The lease expires, and other workers take over then.
    }
    this.#forgetAll();
  }

  async #run<R>(statement: Statement, params: readonly Param[]): Promise<Rows<R>> {
    const { database, session } = this.#options;
    if (session === undefined) return database.run<R>(statement, params);
    const own = await session();
    return this.#isBlocked ? this.#watch.run<R>(own, statement, params) : own.run<R>(statement, params);
  }

  #onExpelled(): void {
    this.#membership.end();
    this.lose([...this.#claims.values()]);
  }

  #forgetAll(): void {
    const lanes = [...this.#claims.keys()];
    this.#claims.clear();
    this.#draining.clear();
    if (lanes.length > 0) this.#worker?.onLanesLost(lanes);
  }

  #reportFailure(error: unknown): void {
    this.#isBlocked = sqlState(error) === SQLSTATE.lockNotAvailable;
    this.#options.observer.emit("storage.failed", {
      doing: `keeping the lease of ${this.#options.scopeName}`,
      error: errorText(error),
      retryInMs: this.#options.settings.tickMs,
    });
    this.#loseLapsed();
  }
}

interface MembershipOptions {
  readonly run: <R>(statement: Statement, params: readonly Param[]) => Promise<Rows<R>>;
  readonly sql: OwnershipStatements;
  readonly scope: number;
  readonly worker: string;
  readonly leaseMs: number;
  /** Whether all statements use one session, so that its end shows other workers that this one has died. */
  readonly hasSession: boolean;
  readonly guest: boolean;
  readonly clock: Clock;
}

/** What the table says about this member and the others. */
interface MemberView {
  readonly members: number;
  readonly rank: number;
  /** The lease is valid and registered for this session. */
  readonly present: boolean;
  readonly free: number;
  /** Lanes that the table assigns to this member although it holds no claim on them. */
  readonly ghosts: number;
  /** Processes without any session left, with host and pid, as a JSON object. */
  readonly absent: string;
}

const NOTHING_SEEN: MemberView = { members: 0, rank: 0, present: false, free: 0, ghosts: 0, absent: "{}" };

const MAX_EARLIER_IDS = 8;

/**
 * One member of a scope, under a lease. Other members judge the lease by the database clock. This process stops
 * relying on it earlier, by its monotonic clock, counted from before the renewal was sent.
 */
class Membership {
  readonly #options: MembershipOptions;
  readonly #endedProcesses: EndedProcesses;
  #id: string | undefined;
  #validUntilMs = -Infinity;
  #earlierIds: readonly string[] = [];

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#endedProcesses = new EndedProcesses(options.leaseMs);
  }

  /** Undefined while this process is not a member. */
  get id(): string | undefined {
    return this.#id;
  }

  /** The latest ids under which this process was a member before. It holds no claims of these memberships. */
  get earlierIds(): readonly string[] {
    return this.#earlierIds;
  }

  /** Milliseconds for which this process may rely on its lease: 90 % of the lease, because clocks differ. */
  remainingMs(): number {
    return this.#validUntilMs - this.#options.clock.monotonicMs();
  }

  /** Whether the lease is valid and does not need a renewal yet. */
  isFresh(look: MemberView): boolean {
    return look.present && this.remainingMs() > this.#options.leaseMs * 0.6;
  }

  async join(): Promise<void> {
    const { run, sql, scope, worker, leaseMs, hasSession, guest, clock } = this.#options;
    const id = `${worker}/${randomToken().slice(0, 12)}`;
    const askedAtMs = clock.monotonicMs();
    const { name, location } = thisProcess;
    await run(sql.join, [id, scope, worker, leaseMs, name, hasSession, location, guest]);
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

  /** Returns the renewal's transaction id, or undefined if the lease had expired. */
  async renew(): Promise<string | undefined> {
    const { run, sql, leaseMs, hasSession, clock } = this.#options;
    const askedAtMs = clock.monotonicMs();
    const id = this.#id;
    const { rows } = await run<{ xid: string }>(sql.renew, [id ?? "", leaseMs, hasSession]);
    if (id !== this.#id) return undefined; // the membership ended meanwhile
    if (rows[0] === undefined) this.end();
    else this.#extendFrom(askedAtMs);
    return rows[0]?.xid;
  }

  /** Ends the leases, in every scope, of local processes that have ended. Returns whether there were any. */
  async dismiss({ absent }: MemberView): Promise<boolean> {
    const { run, sql, leaseMs, clock } = this.#options;
    const locations =
      absent === "{}" ? [] : Object.entries(JSON.parse(absent) as Record<string, string | null>);
    const ended = locations.filter(([, location]) => hasEnded(location)).map(([process]) => process);
    const overdue = this.#endedProcesses.listOverdue(ended, clock.monotonicMs());
    if (overdue.length === 0) return false;
    const { rows } = await run(sql.dismiss, [toArrayLiteral(overdue), leaseMs]);
    return rows.length > 0;
  }

  /** Ends the membership in memory. Other members delete the row after its lease. */
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

/** How long a message that a process sent right before its end may still be in flight to a broker. */
const MAX_GRACE_MS = 2_000;

/** Processes known to have ended, and since when. */
export class EndedProcesses {
  readonly #graceMs: number;
  readonly #sinceMs = new Map<string, number>();

  constructor(leaseMs: number) {
    this.#graceMs = Math.min(MAX_GRACE_MS, leaseMs / 2);
  }

  /** Returns the processes that ended long enough ago that none of their messages is in flight. */
  listOverdue(ended: readonly string[], nowMs: number): string[] {
    for (const process of this.#sinceMs.keys()) {
      if (!ended.includes(process)) this.#sinceMs.delete(process);
    }
    for (const process of ended) {
      if (!this.#sinceMs.has(process)) this.#sinceMs.set(process, nowMs);
    }
    return ended.filter((process) => nowMs - (this.#sinceMs.get(process) ?? nowMs) >= this.#graceMs);
  }
}
