/**
 * Returns false if the text contains a lone surrogate. Node 20 has the method, but our TypeScript `lib`
 * target does not declare it.
 */
export function isWellFormed(text: string): boolean {
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}

/**
 * Returns false if the text contains control characters or lone surrogates, which indexes, logs or brokers
 * reject.
 */
export function isPrintable(text: string): boolean {
  return !/\p{Cc}/u.test(text) && isWellFormed(text);
}
