import { after } from "./timers.ts";

/**
 * Waits for `promise`, but no longer than `ms`; then `onTimeout` gives the result, or throws the error to
 * reject with. The promise itself goes on: its late value or failure is dropped, never left unhandled.
 */
export function withDeadline<T, U = T>(
  promise: Promise<T>,
  ms: number,
  onTimeout: () => U | Promise<U>,
): Promise<T | U> {
  return new Promise((resolve, reject) => {
    const cancel = after(ms, () => {
      try {
        resolve(onTimeout());
      } catch (error) {
        reject(error);
      }
    });
    promise.then(
      (value) => {
        cancel();
        resolve(value);
      },
      (error: unknown) => {
        cancel();
        reject(error);
      },
    );
  });
}
