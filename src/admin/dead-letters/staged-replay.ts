import { systemClock } from "../../runtime/index.ts";
import { type DeadLetterAdmin, findWorkers } from "./dead-letter-admin.ts";
import { GroupReplay, Pacer, type ReplayVerdict } from "./group-replay.ts";
import { type DeadLetterGroup, type DeadLetterGroups, listDeadLetterGroups } from "./list-dead-letters.ts";
import {
  planStages,
  readPaceSettings,
  readReplayConditions,
  readReplaySettings,
  type ReplayFilter,
  type ReplaySettings,
  type Stage,
  type StagedReplayOptions,
} from "./replay-options.ts";

/** Preview of a staged replay. */
export interface ReplayPlan {
  /** Number of dead letters to replay. */
  readonly deadLetters: number;
  readonly groups: readonly (DeadLetterGroup & {
    /** Why no worker would process the messages now; null if a worker runs. */
    readonly notRunning: string | null;
  })[];
  readonly stages: readonly Stage[];
}

export interface GroupReport {
  readonly fingerprint: string;
  readonly label: string;
  readonly consumer: string | null;
  readonly verdict: ReplayVerdict;
  readonly why: string | null;
  /** The last stage that started. */
  readonly stage: Stage["name"];
  /** Open dead letters at the start. */
  readonly planned: number;
  readonly replayed: number;
  readonly handled: number;
  readonly diedAgain: number;
  /** Replayed, and neither handled nor dead-lettered yet. */
  readonly waiting: number;
  /** Not replayed: the group stopped, an earlier message of the key is dead-lettered, or another operator has a lock. */
  readonly left: number;
}

export interface ReplayReport {
  /** "done", or the verdict of the first group with another one. */
  readonly verdict: ReplayVerdict;
  readonly replayed: number;
  readonly handled: number;
  readonly diedAgain: number;
  readonly waiting: number;
  readonly left: number;
  readonly tookMs: number;
  readonly groups: readonly GroupReport[];
}

const PAGE = 1_000;
const MAX_GROUPS = 10_000;
/** Filter values that may contain personal data. They are masked, because the audit log cannot be erased. */
const HIDDEN = ["key", "text"];

/** Previews a staged replay: the groups, the stages, and whether workers run. Read-only. Throws OPTIONS_INVALID. */
export async function planReplay(
  admin: DeadLetterAdmin,
  filter: ReplayFilter,
  pace: Pick<StagedReplayOptions, "rate" | "canary"> = {},
): Promise<ReplayPlan> {
  readReplayConditions(filter);
  const stages = planStages(readPaceSettings(pace));
  const { open, groups } = await listAllGroups(admin, filter);
  const workers = await findWorkers(admin, [...new Set(groups.map(({ consumer }) => consumer))]);
  const idle = new Map(workers.map(({ consumer, why }) => [consumer, why ?? null]));
  return {
    deadLetters: open,
    groups: groups.map((group) => ({ ...group, notRunning: idle.get(group.consumer) ?? null })),
    stages,
  };
}

// Dead letters may change between two pages, so a group may be read twice; a group that is missed counts as left.
async function listAllGroups(
  admin: DeadLetterAdmin,
  filter: ReplayFilter,
): Promise<Omit<DeadLetterGroups, "count">> {
  const found = new Map<string, DeadLetterGroup>();
  for (let offset = 0; ; offset += PAGE) {
    const { open, count, groups } = await listDeadLetterGroups(admin, { ...filter, limit: PAGE, offset });
    for (const group of groups) if (!found.has(group.fingerprint)) found.set(group.fingerprint, group);
    const letters = Math.max(
      open,
      [...found.values()].reduce((sum, group) => sum + group.open, 0),
    );
    if (offset + PAGE >= Math.min(count, MAX_GROUPS)) return { open: letters, groups: [...found.values()] };
  }
}

/**
 * Replays the open dead letters that match a filter, grouped by cause. Each group starts with a canary, waits for its
 * outcome, and then ramps up to the rate. If the failure comes back, its group stops and the others continue. Messages of
 * one key are replayed in order. An interrupted replay can be repeated: each dead letter is closed in the transaction that
 * puts its message back, and messages dead-lettered during the replay are not replayed again.
 * Throws OPTIONS_INVALID for invalid options.
 */
export async function replayInStages(
  admin: DeadLetterAdmin,
  filter: ReplayFilter,
  options: StagedReplayOptions,
): Promise<ReplayReport> {
  const settings = readReplaySettings(filter, options);
  const startedMs = systemClock.monotonicMs();
  const { groups, deadLetters } = await planReplay(admin, filter, settings);
  const upTo = (await admin.store.database.run<{ id: string }>(admin.sql.newest)).rows[0]?.id ?? "0";
  await auditStart(admin, settings, filter, deadLetters);
  const pacer = new Pacer();
  const replays = groups.map((group) => new GroupReplay(admin, settings, { group, upTo, pacer }));
  await runRounds(replays, settings, deadLetters);
  const reports: GroupReport[] = [];
  for (const replay of replays) {
    const report = await reportGroup(admin, settings, upTo, replay);
    await auditEnd(admin, settings, report, replay.tally.error);
    reports.push(report);
  }
  return {
    ...sumReports(reports, deadLetters),
    tookMs: Math.round(systemClock.monotonicMs() - startedMs),
    groups: reports,
  };
}

// A key may have dead letters of two causes, so one group can release a key for another. Repeats while any was replayed.
async function runRounds(
  replays: readonly GroupReplay[],
  { onProgress }: ReplaySettings,
  total: number,
): Promise<void> {
  const countReplayed = (): number => replays.reduce((sum, { tally }) => sum + tally.replayed, 0);
  for (let before = -1; before < countReplayed();) {
    before = countReplayed();
    for (const replay of replays) {
      if (replay.result !== undefined) continue;
      const { fingerprint, label } = replay.group;
      await replay.run(() =>
        onProgress({ fingerprint, label, stage: replay.stage, replayed: countReplayed(), total }),
      );
    }
  }
}

async function reportGroup(
  { store, sql }: DeadLetterAdmin,
  { conditions: { names, params } }: ReplaySettings,
  upTo: string,
  replay: GroupReplay,
): Promise<GroupReport> {
  const { group, tally, waiting, stage } = replay;
  const { fingerprint, label, consumer } = group;
  const { rows } = await store.database.run<{ count: number }>(sql.held(names), [
    fingerprint,
    upTo,
    ...params,
  ]);
  const left = rows[0]?.count ?? 0;
  const { verdict, why } = replay.result ?? {
    verdict: left === 0 ? "done" : "incomplete",
    why:
      left === 0
        ? null
        : `${left} wait for an earlier message of their key, or are locked by another operator`,
  };
  const { replayed, handled, diedSame, diedOtherwise } = tally;
  const diedAgain = diedSame + diedOtherwise;
  return {
    fingerprint,
    label,
    consumer,
    verdict,
    why,
    stage,
    planned: group.open,
    replayed,
    handled,
    diedAgain,
    waiting,
    left,
  };
}

function sumReports(
  groups: readonly GroupReport[],
  deadLetters: number,
): Omit<ReplayReport, "tookMs" | "groups"> {
  const sum = (pick: (group: GroupReport) => number): number =>
    groups.reduce((total, group) => total + pick(group), 0);
  // Dead letters of causes beyond the limit of one replay.
  const beyond = deadLetters - sum(({ planned }) => planned);
  const first = groups.find(({ verdict }) => verdict !== "done")?.verdict;
  return {
    verdict: first ?? (beyond > 0 ? "incomplete" : "done"),
    replayed: sum(({ replayed }) => replayed),
    handled: sum(({ handled }) => handled),
    diedAgain: sum(({ diedAgain }) => diedAgain),
    waiting: sum(({ waiting }) => waiting),
    left: sum(({ left }) => left) + beyond,
  };
}

async function auditStart(
  { store }: DeadLetterAdmin,
  { actor, reason, rate, canary }: ReplaySettings,
  filter: ReplayFilter,
  deadLetters: number,
): Promise<void> {
  const shown = Object.fromEntries(
    Object.entries(filter).map(([name, value]) => [name, HIDDEN.includes(name) ? "…" : String(value)]),
  );
  await store.audit.recordDone(store.database, {
    actor,
    reason,
    action: "dead_letter.staged_replay",
    target: { kind: "dead_letters" },
    after: { filter: shown, deadLetters, rate, canary },
  });
}

async function auditEnd(
  { store }: DeadLetterAdmin,
  { actor, reason }: ReplaySettings,
  report: GroupReport,
  error: string | null,
): Promise<void> {
  const { fingerprint, consumer, verdict, stage, planned, replayed, handled, diedAgain, waiting, left } =
    report;
  // Without the error text, which may contain personal data and is deleted with the dead letter.
  const why = error === null ? report.why : (report.why?.replace(`: ${error}`, "") ?? null);
  await store.audit.recordDone(store.database, {
    actor,
    reason,
    action: verdict === "done" ? "dead_letter.replay_finished" : "dead_letter.replay_stopped",
    target: { kind: "dead_letter_group", id: fingerprint },
    after: { consumer, verdict, why, stage, planned, replayed, handled, diedAgain, waiting, left },
  });
}
