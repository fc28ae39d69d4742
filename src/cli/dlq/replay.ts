import {
  planReplay,
  replayAndWake,
  replayInStages,
  explainWait,
  viewDeadLetter,
  type ReplayPlan,
  type ReplayReport,
} from "../../admin/index.ts";
import { readActorAndReason, readDecision } from "../actor.ts";
import { type CommandInput, DONE, type Io, STOPPED, textValue, UsageError } from "../command.ts";
import { confirmAction, isDryRun } from "../confirm.ts";
import { runInterruptible } from "../stop-signals.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { dropUndefined, numberValue } from "../option-values.ts";
import { readFilter, isFiltered, shorten, withDeadLetters } from "./input.ts";

/** `dlq replay <id>` */
export async function replayOne(input: CommandInput, io: Io, letterId: string): Promise<number> {
  if (isDryRun(input)) return planOne(input, io, letterId);
  const by = readActorAndReason(input, io);
  const {
    letter,
    table: target,
    why,
  } = await withDeadLetters(input, io, async (admin) => {
    const replayed = await replayAndWake(admin, letterId, by);
    const { consumer } = replayed.letter;
    return {
      ...replayed,
      why: await explainWait(admin, consumer).catch(() => undefined),
    };
  });
  const { id, message, consumer } = letter;
  if (input.values["json"] === true)
    io.out(jsonText({ deadLetterId: id, messageId: message.id, consumer, table: target }));
  else
    io.out(
      safeLines(
        `Dead letter ${id} was sent back to ${consumer ?? "the outbox"}. See: sagabox explain ${message.id}`,
      ),
    );
  if (why !== undefined) io.err(safeLines(`It is waiting: ${why}.`));
  return DONE;
}

/** `dlq replay <id> --dry-run`: prints where the message would go, and whether a worker would handle it. */
async function planOne(input: CommandInput, io: Io, letterId: string): Promise<number> {
  const { letter, why } = await withDeadLetters(input, io, async (admin) => {
    const found = await viewDeadLetter(admin, letterId);
    const wait = explainWait(admin, found.dlq_metadata.consumer_group);
    return { letter: found, why: await wait.catch(() => undefined) };
  });
  const { id, consumer_group: consumer, closed_as: closedAs } = letter.dlq_metadata;
  const { id: messageId, type } = letter.original_message;
  if (input.values["json"] === true) {
    io.out(jsonText({ dryRun: true, deadLetterId: id, messageId, consumer, closedAs }));
    return DONE;
  }
  const outcome =
    closedAs === null
      ? `would be sent back to ${consumer ?? "the outbox"}`
      : `is closed (${closedAs}), so a replay would be refused`;
  io.out(safeLines(`Dead letter ${id} (${type}, message ${messageId}) ${outcome}.`));
  if (why !== undefined && closedAs === null) io.out(safeLines(`It would wait: ${why}.`));
  io.out("Dry run: nothing was replayed.");
  return DONE;
}

/** `dlq replay --group …`: prints the plan and replays in stages after confirmation. */
export async function replayMany(input: CommandInput, io: Io): Promise<number> {
  if (!isFiltered(input) && input.values["all"] !== true) {
    throw new UsageError(
      '"sagabox dlq replay" needs the id of a dead letter, a filter such as --group, or --all.',
    );
  }
  const filter = readFilter(input);
  const pace = dropUndefined({ rate: numberValue(input, "rate"), canary: numberValue(input, "canary") });
  const wait = textValue(input, "wait");
  const planAll = () => withDeadLetters(input, io, (admin) => planReplay(admin, filter, pace));
  if (isDryRun(input)) {
    const plan = await planAll();
    const text = `${planText(plan, io.terminal?.columns)}\nDry run: nothing was replayed.`;
    io.out(input.values["json"] === true ? jsonText({ dryRun: true, ...plan }) : text);
    return DONE;
  }
  const by = readDecision(input, io);
  if (input.values["yes"] !== true) {
    const plan = await planAll();
    io.err(planText(plan, io.terminal?.columns));
    const what = `${plan.deadLetters} dead letters are sent back to where they failed.`;
    if (!(await confirmAction(input, io, { what, matters: plan.deadLetters > 0 }))) return STOPPED;
  }
  const progress = startProgress(io, "Replayed");
  const report = await withDeadLetters(input, io, (admin) =>
    runInterruptible(io, (signal) =>
      replayInStages(admin, filter, {
        ...by,
        ...pace,
        ...dropUndefined({ wait: wait as `${number}s` | undefined }),
        signal,
        onProgress: ({ replayed, total, stage, label }) =>
          progress.update(replayed, total, `${stage}, ${shorten(label, 40)}`),
      }),
    ),
  ).finally(() => progress.end());
  io.out(input.values["json"] === true ? jsonText(report) : reportText(report, io.terminal?.columns));
  return report.verdict === "done" ? DONE : STOPPED;
}

function planText({ deadLetters, groups, stages }: ReplayPlan, columns: number | undefined): string {
  if (deadLetters === 0) return "No matching open dead letters.";
  const rows = groups.map((group) => [
    group.fingerprint,
    group.open,
    group.consumer ?? "outbox",
    group.notRunning === null ? "yes" : "no",
    shorten(group.label, 90),
  ]);
  const [canary, ...ramp] = stages;
  const paces = ramp.map(({ perSecond }) => String(Math.round(perSecond * 10) / 10)).join(", ");
  const idle = groups.flatMap(({ notRunning, fingerprint }) =>
    notRunning === null ? [] : [safeLines(`Not replayed: ${fingerprint}, ${notRunning}.`)],
  );
  return [
    table(["group", "open", "consumer", "running", "cause"], rows, columns),
    "",
    ...idle,
    `${canary?.count ?? 1} of each group go first; when they are handled, the rate is ${paces} per second. If a group fails`,
    "again, its replay stops and the other groups continue.",
  ].join("\n");
}

function reportText(
  { groups, replayed, handled, diedAgain, waiting, left, tookMs }: ReplayReport,
  columns: number | undefined,
): string {
  if (groups.length === 0) return "No matching open dead letters.";
  const rows = groups.map((group) => [
    group.fingerprint,
    group.verdict,
    group.stage,
    group.planned,
    group.replayed,
    group.handled,
    group.diedAgain,
    group.waiting,
    group.left,
    shorten(group.label, 60),
  ]);
  const headings = [
    "group",
    "verdict",
    "stage",
    "planned",
    "replayed",
    "handled",
    "died again",
    "waiting",
    "left",
  ];
  const why = groups.flatMap(({ fingerprint, verdict, why: text }) =>
    text === null ? [] : [safeLines(`${fingerprint}: ${verdict}, ${text.replaceAll("\n", " ")}`)],
  );
  const seconds = (tookMs / 1_000).toFixed(1);
  return [
    table([...headings, "cause"], rows, columns),
    "",
    ...why,
    `${replayed} replayed in ${seconds} s: ${handled} handled, ${diedAgain} died again, ${waiting} waiting; ${left} left.`,
    ...(left + waiting === 0
      ? []
      : ["Run the same command again to continue. It starts with a canary again."]),
  ].join("\n");
}
