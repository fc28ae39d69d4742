import { ageText } from "./age-text.ts";
import type { Facts } from "./overview.ts";
import { describeUnreadLanes } from "./unread-lanes.ts";

/** One thing that is wrong, and the command that shows more of it or mends it. */
export interface Problem {
  readonly what: string;
  readonly command: string;
}

export interface Verdict {
  readonly healthy: boolean;
  readonly problems: readonly Problem[];
}

// Whatever is sent goes within a second or so; a relay that failed over needs its lease of half a minute at most.
const LATE_SECONDS = 60;
// A consumer may rightly be slower than that.
const CONSUMER_LATE_SECONDS = 300;

/** Pure: what of all this a person should look at, worst first. */
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
  const wait = waiting.count === 0 ? "whatever is published waits" : `${countText(waiting)} message(s) wait`;
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
    yield { what: `${seen}: owned, yet nobody reads it`, command: `restart worker ${worker}` };
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
  for (const { name, waiting, ownedLanes, oldestDueSeconds } of consumers) {
    if (waiting.count > 0 && ownedLanes === 0) {
      yield {
        what: `${countText(waiting)} message(s) wait for consumer ${name}, which runs nowhere`,
        command: "sagabox doctor",
      };
    } else if ((oldestDueSeconds ?? 0) > CONSUMER_LATE_SECONDS) {
      yield {
        what: `consumer ${name} is behind by ${ageText(oldestDueSeconds ?? 0)}, ${countText(waiting)} wait`,
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

/** The number, or that there are more of them. */
export function countText({ count, exact }: { readonly count: number; readonly exact: boolean }): string {
  return exact ? String(count) : `${count} or more`;
}
