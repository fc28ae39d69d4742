import { after } from "./timers.ts";

/**
 * Waits for `promise` for at most `ms`. After that, `onTimeout` returns the result or throws the error to
 * reject with. The promise itself keeps running; its late value or failure is dropped and never unhandled.
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
