import { SagaboxError } from "../errors/index.ts";
import { withDeadline } from "../runtime/index.ts";
import type { InstanceTask } from "./instance-task.ts";

/** Ends all of them, each within the time. Answers what is to be told of those that had to be cut off. */
export async function stopTasks(
  tasks: Iterable<InstanceTask>,
  deadlineMs: number,
): Promise<SagaboxError | undefined> {
  let cutOff = 0;
  const stop = (task: InstanceTask): Promise<void> =>
    withDeadline(task.stop(), deadlineMs, () => {
      cutOff += 1;
      task.lose();
    });
  await Promise.all(Array.from(tasks, stop));
  if (cutOff === 0) return undefined;
  return new SagaboxError("SHUTDOWN_TIMEOUT", `Local steps of ${cutOff} saga(s) had not ended in time.`);
}
