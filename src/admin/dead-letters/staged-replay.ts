import { systemClock } from "../../runtime/index.ts";
import { GroupReplay, Pacer, type ReplayVerdict } from "./group-replay.ts";
import { listDeadLetterGroups, type DeadLetterGroup, type DeadLetterGroups } from "./groups.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";
import {
  readPaceSettings,
  readReplayConditions,
  readReplaySettings,
  type ReplayFilter,
  type ReplaySettings,
  type StagedReplayOptions,
} from "./replay-options.ts";
import { planStages, type Stage } from "./stages.ts";
import { findWorkers } from "./workers.ts";

/** What a staged replay would do. */
export interface ReplayPlan {
  readonly letters: number;
  readonly groups: readonly (DeadLetterGroup & {
    /** Why nobody would handle it now; null when a worker runs. */
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
  /** The stage it came to. */
  readonly stage: Stage["name"];
  /** Open letters at the start. */
  readonly planned: number;
  readonly replayed: number;
  readonly handled: number;
  readonly diedAgain: number;
  /** Replayed, and neither handled nor dead yet. */
  readonly waiting: number;
  /** Not replayed: the group was stopped, an earlier letter of the same key is dead, or somebody else has it in hand. */
  readonly left: number;
}

export interface ReplayReport {
  /** Done, or the first thing that went otherwise. */
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
/** What a person may have typed that is about a person; the audit log cannot be erased. */
const HIDDEN = ["key", "text"];

/** What would be replayed, and whether anybody would handle it. Changes nothing. */
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
    letters: open,
    groups: groups.map((group) => ({ ...group, notRunning: idle.get(group.consumer) ?? null })),
    stages,
  };
}

// Letters come and go between two pages, so a group may be seen twice; one that is missed counts as left.
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
 * Replays the open letters of a filter, cause by cause: a few first, whose fate is awaited, then more and more up to the
 * rate. A cause that shows itself again stops its group; the others go on. Letters of one key go in the order of their
 * messages, the next when the one before was handled. Whatever ends it, another call goes on with what is left: a letter
 * is closed in the transaction that puts its message back, and letters that died meanwhile are not taken twice.
 */
export async function replayInStages(
  admin: DeadLetterAdmin,
  filter: ReplayFilter,
  options: StagedReplayOptions,
): Promise<ReplayReport> {
  const settings = readReplaySettings(filter, options);
  const beganMs = systemClock.monotonicMs();
  const { groups, letters } = await planReplay(admin, filter, settings);
  const upTo = (await admin.store.database.run<{ id: string }>(admin.sql.newest)).rows[0]?.id ?? "0";
  await auditStart(admin, settings, filter, letters);
  const pacer = new Pacer();
  const replays = groups.map((group) => new GroupReplay(admin, settings, { group, upTo, pacer }));
  await runRounds(replays, settings, letters);
  const reports: GroupReport[] = [];
  for (const replay of replays) {
    const report = await reportGroup(admin, settings, upTo, replay);
    await auditEnd(admin, settings, report, replay.tally.error);
    reports.push(report);
  }
  return {
    ...sumReports(reports, letters),
    tookMs: Math.round(systemClock.monotonicMs() - beganMs),
    groups: reports,
  };
}

// A key may have letters of two causes, so one group can make room for another: as long as anything moves, all get a turn.
async function runRounds(
  replays: readonly GroupReplay[],
  { onProgress }: ReplaySettings,
  total: number,
): Promise<void> {
  const countReplayed = (): number => replays.reduce((sum, { tally }) => sum + tally.replayed, 0);
  for (let before = -1; before < countReplayed();) {
    before = countReplayed();
    for (const replay of replays) {
      if (replay.end !== undefined) continue;
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
  const { verdict, why } = replay.end ?? {
    verdict: left === 0 ? "done" : "incomplete",
    why:
      left === 0
        ? null
        : `${left} wait behind an earlier letter of their key, or somebody else has them in hand`,
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
  letters: number,
): Omit<ReplayReport, "tookMs" | "groups"> {
  const sum = (pick: (group: GroupReport) => number): number =>
    groups.reduce((total, group) => total + pick(group), 0);
  // Of more causes than one replay takes.
  const beyond = letters - sum(({ planned }) => planned);
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
  letters: number,
): Promise<void> {
  const asked = Object.fromEntries(
    Object.entries(filter).map(([name, value]) => [name, HIDDEN.includes(name) ? "…" : String(value)]),
  );
  await store.audit.recordDone(store.database, {
    actor,
    reason,
    action: "dead_letter.staged_replay",
    target: { kind: "dead_letters" },
    after: { filter: asked, letters, rate, canary },
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
  // Without what the error said: that goes when its letter goes.
  const why = error === null ? report.why : (report.why?.replace(`: ${error}`, "") ?? null);
  await store.audit.recordDone(store.database, {
    actor,
    reason,
    action: verdict === "done" ? "dead_letter.replay_finished" : "dead_letter.replay_stopped",
    target: { kind: "dead_letter_group", id: fingerprint },
    after: { consumer, verdict, why, stage, planned, replayed, handled, diedAgain, waiting, left },
  });
}
