const tasks: Promise<unknown>[] = [];

/** Stands for `after` of Next.js, which runs the task when the response has been sent. */
export function after(task: () => Promise<unknown>): void {
  tasks.push(task());
}

/** Resolves when the tasks have ended. */
export async function settled(): Promise<void> {
  await Promise.all(tasks.splice(0));
}
