import { errorText } from "../errors/index.ts";
import { decodeHint, type Hint } from "../lanes/index.ts";
import { parseReplyNotice } from "../requests/index.ts";
import { leasedStatementMs, Notifications } from "../storage/index.ts";
import { isLocalTransport } from "../transport/index.ts";
import { parseErasureNotice } from "./bus-privacy.ts";
import type { Parts } from "./parts.ts";

/** Wakes those whose work a notification speaks of. */
export function hintListener(parts: Parts): Notifications {
  const { leased, settings, channel, relay, transport, tables, replies, mover, sagas, observer } = parts;
  const local = isLocalTransport(transport) ? transport : tables;
  const onHint = ({ lanes, changed }: Hint): void => {
    if (lanes === undefined) {
      relay.sweepAll();
      replies.wake();
      mover.wake();
      sagas.hint();
    } else if (changed) relay.recheck(lanes);
    else relay.hint(lanes);
    local?.hint(lanes, changed);
  };
  return new Notifications({
    database: leased,
    channel,
    keepAliveMs: leasedStatementMs(settings.leaseMs),
    hear: (payload) => {
      const subject = parseErasureNotice(payload);
      if (subject !== undefined) return parts.privacy?.cache.forget(subject);
      const requestId = parseReplyNotice(payload);
      if (requestId === undefined) onHint(decodeHint(payload));
      else replies.wake(requestId);
    },
    onGap: () => onHint({ lanes: undefined, changed: false }),
    onError: (error) =>
      observer.emit("storage.failed", {
        doing: "listening for hints",
        error: errorText(error),
        retryInMs: 1_000,
      }),
  });
}
