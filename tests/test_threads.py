"""Does a handle that threads share keep each transaction with its owner?"""

import threading

import pellucid


def test_a_transaction_that_another_thread_tries_to_end_stays_with_its_owner():
    db = pellucid.open(":memory:")
    transaction = db.transaction()
    transaction.__enter__()
    db["a"] = 1
    refusals = []

    def end_it():
        try:
            transaction.__exit__(None, None, None)
        except pellucid.TransactionError as error:
            refusals.append(error)

    thread = threading.Thread(target=end_it)
    thread.start()
    thread.join()
    assert len(refusals) == 1
    transaction.__exit__(None, None, None)
    db["b"] = 2
    assert dict(db) == {"a": 1, "b": 2}
