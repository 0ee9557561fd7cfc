"""The steps of a search.  Each loads, decides with the domain, saves, then enqueues.

The loop of a run, as if nothing failed, with the function of each line:

    run, proposals = start(problem)                     # lifecycle.start, founding.found_run
    while proposals:
        parents = draw(proposals)                       # generate.brief_proposals
        prompts = write(parents)                        # the operator's `converse`
        replies = model.complete(prompts)               # ask.ask
        children = read(replies)                        # generate.converse
        children = without_similar(children)            # compare.compare
        trials = enter(children)                        # enter.enter_children
        while trials:
            outcomes = sandbox.run(trials)              # evaluate.evaluate_trial
            scores = model.judge(programs)              # judge.ask_judges
            trials = promote(outcomes, scores)          # evaluate.record_results, advance.advance
            archive = offer(measured)                   # admission.admit
        archive = migrate(archive)                      # produce._keep_up
        proposals = plan(archive, budget, load)         # produce.produce

New proposals and trials are messages (`enqueue`), so that any worker goes on with them.  A worker
leases the subjects of a message while it works on them (`lease`), and its threads share their
transactions (`process`).  A subject whose lease runs out is enqueued again (`steps.reap`).
"""
