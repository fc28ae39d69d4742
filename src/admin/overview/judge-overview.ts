import { waitingText } from "./consumer-lag.ts";
import type { Facts } from "./overview.ts";
import { ageText, describeUnreadLanes } from "./unread-lanes.ts";

/** A problem, and the command that shows or fixes it. */
export interface Problem {
  readonly what: string;
  readonly command: string;
}

export interface Verdict {
  readonly healthy: boolean;
  readonly problems: readonly Problem[];
}

// Messages are sent within about a second; a failover takes at most the lease of 30 seconds.
const LATE_SECONDS = 60;
// A consumer may be slower.
const CONSUMER_LATE_SECONDS = 300;
// Where the age is unknown, only the number can show that a consumer is behind. The alerts have the same limits.
const MANY_WAITING = 10_000;

/** Lists the problems, worst first. Pure. */
export function judgeOverview(facts: Facts): Verdict {
  const problems = [
    ...relayProblems(facts),
    ...consumerProblems(facts),
    ...deadLetterProblems(facts),
    ...sagaProblems(facts),
  ];
  return { healthy: problems.length === 0, problems };
}

function* relayProblems({ outbox, lanes, hasRun, unreadLanes }: Facts): Generator<Problem> {
  const { waiting, stubborn, oldestDueSeconds, scheduleLateSeconds } = outbox;
  const wait = waiting.count === 0 ? "published messages wait" : `${countText(waiting)} message(s) wait`;
  if (lanes.unowned === lanes.total) {
    const never = hasRun ? "" : "; no worker has run on this database yet";
    yield {
      what: `no lane is owned by a running worker, and ${wait} to be sent${never}`,
      command: "sagabox worker --app <your module>",
    };
  } else if (lanes.unowned > 0 && waiting.count > 0) {
    yield {
      what: `${lanes.unowned} of ${lanes.total} lanes are not owned by a running worker, and ${wait} to be sent`,
      command: "sagabox doctor",
    };
  }
  for (const { seen, worker } of describeUnreadLanes(unreadLanes)) {
    yield { what: `${seen}: owned, but not read`, command: `restart worker ${worker}` };
  }
  if ((oldestDueSeconds ?? 0) > LATE_SECONDS) {
    yield {
      what: `the oldest message that is due waits for ${ageText(oldestDueSeconds ?? 0)}`,
      command: "sagabox outbox list",
    };
  }
  if (stubborn > 0) {
    yield {
      what: `${stubborn} message(s) could not be sent three times or more`,
      command: "sagabox outbox list --state failed",
    };
  }
  if ((scheduleLateSeconds ?? 0) > LATE_SECONDS) {
    yield {
      what: `scheduled messages are late by ${ageText(scheduleLateSeconds ?? 0)}: no relay runs`,
      command: "sagabox outbox list --state scheduled",
    };
  }
}

function* consumerProblems({ consumers }: Facts): Generator<Problem> {
  for (const { name, waiting, ownedLanes, oldestAgeSeconds } of consumers) {
    const count = waiting === "unknown" ? 0 : waiting.count;
    if (count > 0 && ownedLanes === 0) {
      yield {
        what: `${waitingText(waiting)} message(s) wait for consumer ${name}, which runs nowhere`,
        command: "sagabox doctor",
      };
    } else if (oldestAgeSeconds !== "unknown" && oldestAgeSeconds > CONSUMER_LATE_SECONDS) {
      yield {
        what: `consumer ${name} is behind by ${ageText(oldestAgeSeconds)}${count === 0 ? "" : `, ${waitingText(waiting)} wait`}`,
        command: "sagabox inbox stats",
      };
    } else if (oldestAgeSeconds === "unknown" && count > MANY_WAITING) {
      yield {
        what: `consumer ${name} is behind: ${waitingText(waiting)} wait, the oldest for an unknown time`,
        command: "sagabox inbox stats",
      };
    }
  }
}

function* deadLetterProblems({ deadLetters, outbox: { heldKeys } }: Facts): Generator<Problem> {
  if (deadLetters.count === 0) return;
  const held = heldKeys === 0 ? "" : `; ${heldKeys} key(s) stand still behind one`;
  yield { what: `${countText(deadLetters)} dead letter(s) are open${held}`, command: "sagabox dlq list" };
}

function* sagaProblems({ sagas }: Facts): Generator<Problem> {
  if (sagas.failed === 0) return;
  yield { what: `${sagas.failed} saga(s) wait for a person's decision`, command: "sagabox saga stuck" };
}

/** Formats a bounded count: "5", or "100000 or more". */
export function countText({ count, exact }: { readonly count: number; readonly exact: boolean }): string {
  return exact ? String(count) : `${count} or more`;
}
